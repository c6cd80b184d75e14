// The bytes that an expert layer moves, in closed form. The communicator's counters must agree.
#ifndef GEMINID_TESTS_TRAINING_NN_PARALLEL_EXPERTS_EXPERT_TRAFFIC_H_
#define GEMINID_TESTS_TRAINING_NN_PARALLEL_EXPERTS_EXPERT_TRAFFIC_H_

#include <cstddef>
#include <cstdint>

#include "geminid/communicator.h"

namespace geminid::collectives {

// Of one rank.
struct ExpertTraffic {
  size_t ranks = 1;
  size_t experts = 0;  // of all ranks
  size_t hidden = 0;
  size_t rows_away = 0;  // of this rank's tokens, computed by other ranks
  size_t rows_here = 0;  // of other ranks' tokens, computed by this one

  // Counts; rows there; what came of them back.
  uint64_t ForwardBytes() const {
    return (ranks - 1) * (experts / ranks) * sizeof(int64_t) + RowBytes();
  }
  // The gradients of both, and those of the router, added up over the ranks: sent whole where they
  // are few, else in slices of the ranks, which divide them.
  uint64_t BackwardBytes() const {
    const uint64_t router = experts * hidden * sizeof(float);
    const uint64_t direct = (ranks - 1) * router;
    return RowBytes() + (router <= kDirectAllReduceBytes ? direct : 2 * direct / ranks);
  }
  uint64_t RowBytes() const { return (rows_here + rows_away) * hidden * sizeof(float); }
};

}  // namespace geminid::collectives

#endif  // GEMINID_TESTS_TRAINING_NN_PARALLEL_EXPERTS_EXPERT_TRAFFIC_H_
