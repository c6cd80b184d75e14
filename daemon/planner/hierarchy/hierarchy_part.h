#ifndef GEMINID_DAEMON_PLANNER_HIERARCHY_HIERARCHY_PART_H_
#define GEMINID_DAEMON_PLANNER_HIERARCHY_HIERARCHY_PART_H_

#include <cstddef>
#include <cstdint>

#include "daemon/planner/problem/enum_set.h"

namespace geminid::planner {

// The parts of the planner over the hierarchy that can be left out one at a time, to measure what
// each is worth (the table in docs/planner_hierarchy.md). Plans are valid without any of them.
enum class HierarchyPart : std::uint8_t {
  kFitted,
  kDual,
  kChains,
  kLowLevel,
  kHighLevel,
  kTail,
  kReserves,
  kChangeOne,
  kChangeTwo,
  kRestarts,
  kSmallerCaches,
};
inline constexpr std::size_t kNumHierarchyParts = 11;

using HierarchyPartSet = EnumSet<HierarchyPart, kNumHierarchyParts>;

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_HIERARCHY_HIERARCHY_PART_H_
