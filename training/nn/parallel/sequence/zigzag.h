// Which tokens a rank has when a sequence is partitioned for causal attention.
#ifndef GEMINID_TRAINING_NN_PARALLEL_SEQUENCE_ZIGZAG_H_
#define GEMINID_TRAINING_NN_PARALLEL_SEQUENCE_ZIGZAG_H_

#include <cstddef>

namespace geminid::collectives {

// A sequence has twice as many chunks as there are ranks. Rank r has the r-th chunk from the front,
// then the r-th from the back. A token attends to earlier tokens, so early chunks are little work
// and late ones much: every such pair is the same work.
struct Zigzag {
  size_t sequence = 0;  // divisible by 2 ranks
  size_t ranks = 1;

  size_t chunk() const { return sequence / (2 * ranks); }
  size_t tokens() const { return 2 * chunk(); }  // of a rank
  // The position in the sequence of the rank's `token`.
  size_t PlaceOf(size_t rank, size_t token) const {
    const size_t number = token < chunk() ? rank : 2 * ranks - 1 - rank;
    return number * chunk() + token % chunk();
  }
};

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_SEQUENCE_ZIGZAG_H_
