#ifndef GEMINID_DAEMON_PLANNER_HIERARCHY_PLANNER_STAGE_H_
#define GEMINID_DAEMON_PLANNER_HIERARCHY_PLANNER_STAGE_H_

#include <bitset>
#include <cstddef>
#include <cstdint>

namespace geminid::planner {

// The parts of the planner over the hierarchy that can be left out one at a time, to measure what
// each is worth (the table in docs/planner_hierarchy.md). Plans are valid without any of them.
enum class PlannerStage : std::uint8_t {
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
inline constexpr std::size_t kNumPlannerStages = 11;

class PlannerStageSet {
 public:
  PlannerStageSet() = default;
  explicit PlannerStageSet(PlannerStage only) { bits_.set(static_cast<std::size_t>(only)); }
  PlannerStageSet With(PlannerStage part) const {
    PlannerStageSet set = *this;
    set.bits_.set(static_cast<std::size_t>(part));
    return set;
  }
  bool Has(PlannerStage part) const { return bits_.test(static_cast<std::size_t>(part)); }

 private:
  std::bitset<kNumPlannerStages> bits_;
};

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_HIERARCHY_PLANNER_STAGE_H_
