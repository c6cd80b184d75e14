#ifndef GEMINID_DAEMON_PLANNER_PROBLEM_PROBLEM_H_
#define GEMINID_DAEMON_PLANNER_PROBLEM_PROBLEM_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/planner/contract/plan.h"
#include "daemon/planner/contract/trace.h"
#include "daemon/planner/problem/stage.h"

// The trace in the form that the planner's stages share. Chunks are numbered by their first use
// ("items"), so nothing depends on the caller's numbering. Sizes are rounded to the size of an
// extent, and the mandatory occupancy of each moment is known. Internal to the planner.

namespace geminid::planner {

struct ItemUse {
  std::int64_t moment = 0;
  bool invalidates = false;
  // First moment at which the extent may be reused if the stay ends with this use. It is moment +
  // 1, or later while a gradient drains, and may be N or more.
  std::int64_t free_moment = 0;
};

struct Item {
  ChunkIndex chunk = 0;
  std::int64_t extent_bytes = 0;
  std::uint64_t transfer_bytes = 0;
  std::uint64_t gradient_bytes = 0;
  // The item's device copy is stale in the next iteration.
  bool changes = false;
  std::vector<ItemUse> uses = {};  // by moment; never empty
  // Index of gap 0 in the numbering of all gaps.
  std::size_t first_gap = 0;
};

// Gap k of an item lies between its uses k and k + 1. The last gap of an item leads to the item's
// first use in the next iteration.
struct Gap {
  std::uint32_t item = 0;
  // Interior moments, in which a retained chunk occupies space: [first, last], empty if last <
  // first. Unrolled: the interior of a gap over the boundary may pass N - 1.
  std::int64_t first = 0;
  std::int64_t last = 0;
  bool crosses_boundary = false;
  // The copy is still the weight at the next use, so retaining it saves a load.
  bool valued = false;
};

struct Problem {
  std::int64_t num_moments = 0;
  std::vector<std::int64_t> capacity_bytes;  // per moment, a multiple of `granule_bytes`
  // Bytes that are occupied whatever is retained: by the used chunks and by draining gradients.
  std::vector<std::int64_t> required_bytes;
  std::vector<Item> items;
  std::vector<Gap> gaps;
  bool equal_sizes = false;
  // The common size if all sizes are equal (capacities are then whole slots), or the alignment.
  std::int64_t granule_bytes = 1;
  // A gap over the iteration boundary has a value, so the problem is truly cyclic.
  bool cyclic = false;
  StageSet without = {};  // stages that the planner leaves out
  // How many times a drain began or ended in RequireDrains: counts as work of the planner.
  std::int64_t drain_steps = 0;
};

// Validates both arguments, and refuses a trace in which a moment's chunks do not fit. O(size).
absl::StatusOr<Problem> BuildProblem(const Trace& trace, const PlannerOptions& options);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_PROBLEM_PROBLEM_H_
