// Counts what became of plans in this run, for Statistics.
#ifndef GEMINID_CLIENT_ZERO_STEP_PLAN_TALLY_H_
#define GEMINID_CLIENT_ZERO_STEP_PLAN_TALLY_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "client/zero/core/replan.h"
#include "geminid/plan.h"
#include "geminid/zero.h"

namespace geminid::zero {

class PlanTally {
 public:
  // A plan was put in force. `differs`: its moves differ from those of the plan before.
  void CountPlan(bool differs) {
    ++put_in_force_;
    if (differs) ++plans_made_;
  }
  void CountReplan(ReplanCause cause) { ++replans_[static_cast<size_t>(cause)]; }
  // Why the last sample gave no plan; empty: it gave one.
  void SetWhyNone(std::string why) { why_none_ = std::move(why); }

  // CountPlanned: a micro-batch followed its plan, whose transfers have this bound. CountSampled:
  // one ran before the first plan, which is made from it. One that left its plan has no bound.
  void CountPlanned(uint64_t bound_bytes) { bound_bytes_ += bound_bytes; }
  void CountSampled() { ++sampled_micro_batches_; }

  // `plan`: the one in force, or null.
  void AddTo(const Plan* plan, Statistics* statistics) const {
    statistics->plans_made = plans_made_;
    for (const ReplanCause cause : {ReplanCause::kPeak, ReplanCause::kAccessOrder,
                                    ReplanCause::kSlower, ReplanCause::kFaster}) {
      statistics->replans_by_cause.emplace_back(ReplanCauseName(cause),
                                                replans_[static_cast<size_t>(cause)]);
    }
    statistics->plan_explanation = why_none_;
    statistics->transfer_bytes_lower_bound = bound_bytes_;
    if (plan == nullptr) return;
    statistics->planned_transfer_bytes = plan->transfer_bytes;
    statistics->everything_fits = plan->everything_fits;
    statistics->plan_explanation = plan->explanation;
    statistics->transfer_bytes_lower_bound +=
        sampled_micro_batches_ * plan->transfer_bytes_lower_bound;
  }

  bool operator==(const PlanTally&) const = default;

 private:
  uint64_t put_in_force_ = 0;
  uint64_t plans_made_ = 0;
  std::array<uint64_t, kReplanCauses> replans_ = {};
  std::string why_none_;
  uint64_t bound_bytes_ = 0;
  uint64_t sampled_micro_batches_ = 0;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_STEP_PLAN_TALLY_H_
