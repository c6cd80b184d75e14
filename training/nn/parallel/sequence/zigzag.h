// Which tokens a rank has when a sequence is cut for causal attention.
#ifndef GEMINID_TRAINING_NN_PARALLEL_SEQUENCE_ZIGZAG_H_
#define GEMINID_TRAINING_NN_PARALLEL_SEQUENCE_ZIGZAG_H_

#include <cstddef>

namespace geminid::collectives {

// The sequence is cut into twice as many chunks as there are ranks, and rank r has the r-th from
// the front and the r-th from the back, one behind the other. A token attends to those before it,
// so the first chunks are little work and the last ones much: every pair of them is the same.
struct Zigzag {
  size_t sequence = 0;  // divisible by 2 ranks
  size_t ranks = 1;

  size_t chunk() const { return sequence / (2 * ranks); }
  size_t tokens() const { return 2 * chunk(); }  // of a rank
  // Where the rank's `token` stands in the sequence.
  size_t PlaceOf(size_t rank, size_t token) const {
    const size_t number = token < chunk() ? rank : 2 * ranks - 1 - rank;
    return number * chunk() + token % chunk();
  }
};

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_SEQUENCE_ZIGZAG_H_
