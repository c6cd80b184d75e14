// Whether a micro-batch that followed no plan should become one: the more rarely, the more often
// plans made for such micro-batches were left again. Pure.
#ifndef GEMINID_CLIENT_ZERO_CORE_PLAN_BACKOFF_H_
#define GEMINID_CLIENT_ZERO_CORE_PLAN_BACKOFF_H_

#include <algorithm>
#include <cstdint>

namespace geminid::zero {

class PlanBackoff {
 public:
  // A micro-batch is over, which followed its plan; or did not, and left one or had none.
  void Followed() {
    wants_plan_ = false;
    if (++followed_in_a_row_ >= kCalmMicroBatches) interval_ = 1;
  }
  void NotFollowed(bool left_plan, bool empty) {
    followed_in_a_row_ = 0;
    wants_plan_ = !empty && ++unplanned_ >= interval_;
    if (!wants_plan_) return;
    unplanned_ = 0;
    if (left_plan) WaitLonger();
  }
  void GivenUp() { wants_plan_ = false; }
  // The next plan is wanted after twice as many micro-batches.
  void WaitLonger() { interval_ = std::min(2 * interval_, kMostInterval); }

  bool wants_plan() const { return wants_plan_; }

 private:
  // A plan for every micro-batch would cost more than it saves when each differs from the one
  // before.
  static constexpr uint32_t kMostInterval = 64;
  static constexpr uint32_t kCalmMicroBatches = 8;

  bool wants_plan_ = false;
  uint32_t unplanned_ = 0;  // micro-batches since a plan was wanted
  uint32_t interval_ = 1;   // of them, before the next one
  uint32_t followed_in_a_row_ = 0;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_CORE_PLAN_BACKOFF_H_
