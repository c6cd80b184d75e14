#ifndef GEMINID_TESTS_DAEMON_PLANNER_HIERARCHY_PROBLEMS_H_
#define GEMINID_TESTS_DAEMON_PLANNER_HIERARCHY_PROBLEMS_H_

#include <cstdint>

#include "daemon/planner/hierarchy/hierarchy.h"

namespace geminid::planner {

inline constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
inline constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

// A chain of layers, forward and then backward, one chunk and one activation each: moment i of
// forward uses chunk i, moment 2 layers - 1 - i of backward uses it again and makes its gradient.
struct ChainShape {
  std::uint32_t layers = 4;
  std::uint64_t parameters = 1 << 20;  // of one layer, the shard of this rank with `ranks`
  std::uint64_t activation_bytes = 4 * kMiB;
  std::uint64_t kept_bytes = kMiB / 2;
  std::uint64_t workspace_bytes = kMiB;
  double forward_seconds = 1e-3;  // backward takes twice as long; recomputing as long
};

// 50 GB/s each way, 400 GB/s of host memory, 2 TB/s of device memory, one rank, plenty of host
// memory, no disk.
Machine PlainMachine();

// Adam with a split master: 2 + 2 + 8 bytes, 2 of gradient. The arena is `arena_bytes`.
HierarchyProblem Chain(const ChainShape& shape, std::uint64_t arena_bytes);

// As Chain, with sizes, times and rates drawn from the seed; some chunks frozen, some activations
// that cannot be offloaded or recomputed.
HierarchyProblem RandomProblem(std::uint32_t layers, std::uint32_t seed);

}  // namespace geminid::planner

#endif  // GEMINID_TESTS_DAEMON_PLANNER_HIERARCHY_PROBLEMS_H_
