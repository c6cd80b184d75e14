// Decides whether a micro-batch that followed no plan should become one: ever less often while
// plans made for such micro-batches are not followed. A job may alternate between a few sequences
// of operators, and a plan fits only one of them. Each sequence gets a plan once, and another one
// only when the job has settled on that sequence. Pure.
#ifndef GEMINID_CLIENT_ZERO_CORE_PLAN_BACKOFF_H_
#define GEMINID_CLIENT_ZERO_CORE_PLAN_BACKOFF_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

namespace geminid::zero {

class PlanBackoff {
 public:
  // A micro-batch has ended. Followed: it followed its plan. NotFollowed: it left its plan, or had
  // none. `operators`: their fingerprint; nullopt: there were no operators.
  void Followed() {
    wants_plan_ = false;
    same_in_a_row_ = 0;
    if (++followed_in_a_row_ >= kCalmMicroBatches) interval_ = 1;
  }
  void NotFollowed(bool left_plan, std::optional<uint64_t> operators) {
    followed_in_a_row_ = 0;
    same_in_a_row_ = operators == last_ ? same_in_a_row_ + 1 : 1;
    last_ = operators;
    wants_plan_ = operators.has_value() && ++unplanned_ >= interval_ &&
                  (!left_plan || !HadPlan(*operators) || same_in_a_row_ >= kSettledMicroBatches);
    if (!wants_plan_) return;
    unplanned_ = 0;
    NotePlan(*operators);
    if (left_plan) WaitLonger();
  }
  void GivenUp() { wants_plan_ = false; }
  // The next plan is wanted only after twice as many micro-batches.
  void WaitLonger() { interval_ = std::min(2 * interval_, kMostInterval); }

  bool wants_plan() const { return wants_plan_; }

 private:
  // If every micro-batch differs from the one before, a plan for each would cost more than it
  // saves.
  static constexpr uint32_t kMostInterval = 64;
  static constexpr uint32_t kCalmMicroBatches = 8;
  static constexpr uint32_t kSettledMicroBatches = 4;
  // Kinds of micro-batches beyond this number are forgotten, so they count as new each time.
  static constexpr size_t kMostKinds = 16;

  bool HadPlan(uint64_t operators) const {
    return std::ranges::find(had_plan_, operators) != had_plan_.end();
  }
  void NotePlan(uint64_t operators) {
    if (HadPlan(operators)) return;
    if (had_plan_.size() == kMostKinds) had_plan_.pop_front();
    had_plan_.push_back(operators);
  }

  bool wants_plan_ = false;
  uint32_t unplanned_ = 0;  // micro-batches since a plan was wanted
  uint32_t interval_ = 1;   // micro-batches without a plan before the next plan
  uint32_t followed_in_a_row_ = 0;
  std::optional<uint64_t> last_;   // operators of the last micro-batch that was not followed
  uint32_t same_in_a_row_ = 0;     // micro-batches in a row with these operators
  std::deque<uint64_t> had_plan_;  // operators for which a plan was wanted
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_CORE_PLAN_BACKOFF_H_
