// The simulated clock and its events.
#ifndef GEMINID_TOOLS_SIM_EVENT_QUEUE_H_
#define GEMINID_TOOLS_SIM_EVENT_QUEUE_H_

#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include "daemon/core/basics/time.h"

namespace geminid::sim {

// `seconds` in the clock's nanoseconds; negative ones become zero.
core::Duration FromSeconds(double seconds);

// Events of one simulation. They run in order of time and, at the same time, in the order in which
// they were added: a run depends on nothing but its input. Not thread-safe.
class EventQueue {
 public:
  using Action = std::function<void()>;

  core::Time now() const { return now_; }
  double seconds() const { return (now_ - core::Time()).seconds(); }

  // Times that have passed count as now.
  void At(core::Time when, Action action);
  void After(core::Duration delay, Action action) { At(now_ + delay, std::move(action)); }
  // Runs `action` after everything else that is due now.
  void Soon(Action action) { At(now_, std::move(action)); }

  // Runs the next event. False: there is none.
  bool RunNext();
  uint64_t events() const { return carried_out_; }

 private:
  struct Event {
    core::Time when;
    uint64_t order = 0;
    Action action;
  };
  struct IsLater {
    bool operator()(const Event& a, const Event& b) const {
      return a.when != b.when ? a.when > b.when : a.order > b.order;
    }
  };

  core::Time now_;
  uint64_t added_ = 0;
  uint64_t carried_out_ = 0;
  std::priority_queue<Event, std::vector<Event>, IsLater> events_;
};

}  // namespace geminid::sim

#endif  // GEMINID_TOOLS_SIM_EVENT_QUEUE_H_
