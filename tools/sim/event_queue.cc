#include "tools/sim/event_queue.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace geminid::sim {

core::Duration FromSeconds(double seconds) {
  constexpr double kNanosecondsPerSecond = 1e9;
  return core::Duration::Nanoseconds(std::llround(std::max(0.0, seconds) * kNanosecondsPerSecond));
}

void EventQueue::At(core::Time when, Action action) {
  events_.push({std::max(when, now_), added_++, std::move(action)});
}

bool EventQueue::RunNext() {
  if (events_.empty()) return false;
  // The queue only hands out constant references; the action is moved out before the event goes.
  Action action = std::move(const_cast<Event&>(events_.top()).action);
  now_ = events_.top().when;
  events_.pop();
  ++carried_out_;
  action();
  return true;
}

}  // namespace geminid::sim
