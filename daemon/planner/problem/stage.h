#ifndef GEMINID_DAEMON_PLANNER_PROBLEM_STAGE_H_
#define GEMINID_DAEMON_PLANNER_PROBLEM_STAGE_H_

#include <bitset>
#include <cstddef>
#include <cstdint>

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

class StageSet {
 public:
  StageSet() = default;
  explicit StageSet(Stage only) { bits_.set(static_cast<std::size_t>(only)); }
  StageSet With(Stage stage) const {
    StageSet set = *this;
    set.bits_.set(static_cast<std::size_t>(stage));
    return set;
  }
  bool Has(Stage stage) const { return bits_.test(static_cast<std::size_t>(stage)); }

 private:
  std::bitset<kNumStages> bits_;
};

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_PROBLEM_STAGE_H_
