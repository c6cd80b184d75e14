#ifndef GEMINID_DAEMON_PLANNER_PROBLEM_PROBLEM_H_
#define GEMINID_DAEMON_PLANNER_PROBLEM_PROBLEM_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/planner/contract/plan.h"
#include "daemon/planner/contract/trace.h"
#include "daemon/planner/problem/stage.h"

// The trace in the form the planner's stages share: chunks numbered by their first use ("items"),
// so that nothing depends on how the caller numbered them, sizes rounded to what an extent takes,
// and the mandatory occupancy of each moment already known. Internal to the planner.

namespace geminid::planner {

struct ItemUse {
  std::int64_t moment = 0;
  bool invalidates = false;
  // First moment at which the extent may be reused if the stay ends with this use: moment + 1, or
  // later while a gradient drains; may be N or more.
  std::int64_t free_moment = 0;
};

struct Item {
  ChunkIndex chunk = 0;
  std::int64_t extent_bytes = 0;
  std::uint64_t transfer_bytes = 0;
  std::uint64_t gradient_bytes = 0;
  // Its device copy is stale in the next iteration.
  bool changes = false;
  std::vector<ItemUse> uses = {};  // by moment; never empty
  // Index of gap 0 in the numbering of all gaps.
  std::size_t first_gap = 0;
};

// Gap k of an item lies between its use k and the next one; the last gap of an item leads to its
// first use of the next iteration.
struct Gap {
  std::uint32_t item = 0;
  // Interior moments, when the chunk must occupy space to be kept: [first, last], empty if
  // last < first. Unrolled: the interior of a gap over the boundary may pass N - 1.
  std::int64_t first = 0;
  std::int64_t last = 0;
  bool crosses_boundary = false;
  // The copy is still the weight at the next use: keeping it saves a load.
  bool valued = false;
};

struct Problem {
  std::int64_t num_moments = 0;
  std::vector<std::int64_t> capacity_bytes;  // per moment, a multiple of `granule_bytes`
  // Bytes that must be there whatever is kept: the uses and the draining gradients.
  std::vector<std::int64_t> required_bytes;
  std::vector<Item> items;
  std::vector<Gap> gaps;
  bool equal_sizes = false;
  // The common size if all are equal (capacities are then whole slots), else the alignment.
  std::int64_t granule_bytes = 1;
  // A gap over the iteration boundary has a value, so the problem is truly cyclic.
  bool cyclic = false;
  StageSet without = {};  // parts of the planner left out
  // Drains that began or ended while they were required: they count as work of the planner.
  std::int64_t drain_steps = 0;
};

// Validates both arguments and refuses a trace of which some moment cannot fit. O(size).
absl::StatusOr<Problem> BuildProblem(const Trace& trace, const PlannerOptions& options);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_PROBLEM_PROBLEM_H_
