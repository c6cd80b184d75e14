#include "daemon/planner/problem/stage.h"

namespace geminid::planner {

const char* StageName(Stage stage) {
  switch (stage) {
    case Stage::kTakeBack:
      return "taking back what still fits";
    case Stage::kReserves:
      return "held-back space";
    case Stage::kNothingRetained:
      return "the candidate that keeps nothing";
    case Stage::kCheapestWindow:
      return "cache: cheapest window";
    case Stage::kCheapestReload:
      return "cache: cheapest reload";
    case Stage::kLastNeeded:
      return "cache: last needed";
    case Stage::kPinned:
      return "cache: pinned";
    case Stage::kCachesWithoutDrains:
      return "caches without drains";
    case Stage::kCachesLoadAhead:
      return "loading ahead in caches";
    case Stage::kBeginAtPeak:
      return "placing from the peak";
    case Stage::kLowOffsets:
      return "placing at low offsets";
    case Stage::kClearWindows:
      return "clearing windows";
    case Stage::kExtendDrains:
      return "longer drains";
  }
  return "unknown";
}

}  // namespace geminid::planner
