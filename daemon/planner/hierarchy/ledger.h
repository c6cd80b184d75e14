#ifndef GEMINID_DAEMON_PLANNER_HIERARCHY_LEDGER_H_
#define GEMINID_DAEMON_PLANNER_HIERARCHY_LEDGER_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/pages.h"
#include "daemon/planner/hierarchy/evaluate.h"

// The owners of a tier's bytes at the moment when the tier is fullest.

namespace geminid::planner {

// Bytes of the plan's extents that are alive at each moment, by the owner that `owner_of` gives
// their chunk. O(residencies + moments).
template <typename OwnerOf>
std::array<std::vector<std::uint64_t>, kNumOwners> ResidentBytes(const Trace& trace,
                                                                 const Plan& plan,
                                                                 const OwnerOf& owner_of) {
  const auto n = static_cast<std::int64_t>(trace.moments.size());
  const std::uint64_t alignment = plan.options.alignment_bytes;
  std::array<std::vector<std::uint64_t>, kNumOwners> bytes;
  // The vectors first hold differences, which may wrap below zero; their running sums do not.
  for (std::vector<std::uint64_t>& owner : bytes) {
    owner.assign(trace.moments.size() + 1, 0);
  }
  for (const Residency& residency : plan.residencies) {
    const std::uint64_t size = trace.chunks[residency.chunk].size_bytes;
    const std::uint64_t extent = base::RoundUp(size, alignment);
    std::vector<std::uint64_t>& owner = bytes[static_cast<std::size_t>(owner_of(residency.chunk))];
    for (std::int64_t cycle = -1; cycle <= 2; ++cycle) {
      const std::int64_t first = std::max(residency.begin, cycle * n);
      const std::int64_t end = std::min(residency.end, (cycle + 1) * n);
      if (first >= end) continue;
      owner[static_cast<std::size_t>(first - cycle * n)] += extent;
      owner[static_cast<std::size_t>(end - cycle * n)] -= extent;
    }
  }
  for (std::vector<std::uint64_t>& owner : bytes) {
    for (std::size_t t = 1; t < owner.size(); ++t) owner[t] += owner[t - 1];
    owner.pop_back();
  }
  return bytes;
}

// Sets by_owner and peak of the tier to those of the moment with the largest sum; the first of
// several.
void FillTier(const std::array<std::vector<std::uint64_t>, kNumOwners>& bytes, TierBytes& tier);

// Fills the device's ledger from its plan, or without a plan from the bytes that moments require.
void FillDeviceLedger(const PreparedProblem& prepared, const Occupancy& occupancy,
                      HierarchyPlan& plan);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_HIERARCHY_LEDGER_H_
