#ifndef GEMINID_TESTS_DAEMON_PLANNER_TIERS_PROBLEMS_H_
#define GEMINID_TESTS_DAEMON_PLANNER_TIERS_PROBLEMS_H_

#include <cstdint>

#include "daemon/planner/tiers/tier_plan.h"

namespace geminid::planner {

inline constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
inline constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

// A chain of layers with one chunk and one activation each, forward and then backward. Moment i of
// forward uses chunk i. Moment 2 layers - 1 - i of backward uses the chunk again and makes its
// gradient.
struct ChainShape {
  std::uint32_t layers = 4;
  std::uint64_t parameters = 1 << 20;  // of one layer: the shard of this rank with `ranks`
  std::uint64_t activation_bytes = 4 * kMiB;
  std::uint64_t kept_bytes = kMiB / 2;
  std::uint64_t workspace_bytes = kMiB;
  double forward_seconds = 1e-3;  // backward takes twice as long, and recomputing takes as long
};

// A machine with 50 GB/s each way, 400 GB/s of host memory, 2 TB/s of device memory, one rank,
// and plenty of host memory.
Machine PlainMachine();

// Adam with a split master: 2 + 2 + 8 bytes per parameter, and 2 of gradient.
TierProblem Chain(const ChainShape& shape, std::uint64_t arena_bytes);

// As Chain, with sizes, times and rates from the seed. Some chunks are frozen. Some activations
// cannot be offloaded or recomputed.
TierProblem RandomProblem(std::uint32_t layers, std::uint32_t seed);

}  // namespace geminid::planner

#endif  // GEMINID_TESTS_DAEMON_PLANNER_TIERS_PROBLEMS_H_
