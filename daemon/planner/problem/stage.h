#ifndef GEMINID_DAEMON_PLANNER_PROBLEM_STAGE_H_
#define GEMINID_DAEMON_PLANNER_PROBLEM_STAGE_H_

#include <cstddef>
#include <cstdint>

#include "daemon/planner/problem/enum_set.h"

namespace geminid::planner {

// The stages of the planner that can be left out one at a time, to measure what each is worth (the
// table in docs/planner.md). Plans are valid without any of them.
enum class Stage : std::uint8_t {
  kTakeBack,
  kReserves,
  kNothingRetained,
  kCheapestWindow,
  kCheapestReload,
  kLastNeeded,
  kPinned,
  kCachesWithoutDrains,
  kCachesLoadAhead,
  kBeginAtPeak,
  kLowOffsets,
  kClearWindows,
  kExtendDrains,
};
inline constexpr std::size_t kNumStages = 13;

using StageSet = EnumSet<Stage, kNumStages>;

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_PROBLEM_STAGE_H_
