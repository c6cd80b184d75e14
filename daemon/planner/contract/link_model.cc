#include "daemon/planner/contract/link_model.h"

#include <algorithm>
#include <limits>

namespace geminid::planner {
namespace {

double ShareOfUplink(const LinkModel& link, double own_bytes_per_second) {
  if (link.uplink_bytes_per_second <= 0) return own_bytes_per_second;
  return std::min(own_bytes_per_second, link.uplink_bytes_per_second / link.ranks_per_uplink);
}

}  // namespace

double UpBytesPerSecond(const LinkModel& link) {
  return ShareOfUplink(link, link.h2d_bytes_per_second);
}

double DownBytesPerSecond(const LinkModel& link) {
  return ShareOfUplink(link, link.d2h_bytes_per_second);
}

double BothDirectionsSeconds(const LinkModel& link, double up_seconds, double down_seconds) {
  return std::max(up_seconds, down_seconds) +
         std::min(up_seconds, down_seconds) * (1 / link.both_directions_share - 1);
}

std::size_t LinkSimulation::Send(Direction direction, std::uint64_t bytes) {
  Queue& queue = queues_[direction];
  const double speed = direction == kUp ? UpBytesPerSecond(link_) : DownBytesPerSecond(link_);
  queue.latency.push_back(link_.latency_seconds);
  queue.work.push_back(static_cast<double>(bytes) / speed);
  queue.done_at.push_back(0);
  return queue.work.size() - 1;
}

// Seconds until the head of the queue starts to flow or is done.
double LinkSimulation::SecondsToEvent(const Queue& queue, const Queue& other) const {
  if (!queue.busy()) return std::numeric_limits<double>::infinity();
  if (!queue.flows()) return queue.latency[queue.next];
  const double share = other.flows() ? link_.both_directions_share : 1;
  return queue.work[queue.next] / share;
}

// Advances the head of the queue. `flow_seconds`: the work that is done if the head flows.
void LinkSimulation::Pass(double seconds, double flow_seconds, Queue& queue) const {
  if (!queue.busy()) return;
  double& left = queue.flows() ? queue.work[queue.next] : queue.latency[queue.next];
  left = std::max(0.0, left - (queue.flows() ? flow_seconds : seconds));
}

// Advances to the next event, or to the limit if that comes first.
void LinkSimulation::Step(double limit_seconds) {
  Queue& up = queues_[kUp];
  Queue& down = queues_[kDown];
  const double up_event = SecondsToEvent(up, down);
  const double down_event = SecondsToEvent(down, up);
  const double event = std::min(up_event, down_event);
  const bool limited = now_ + event > limit_seconds;
  const double passed = limited ? limit_seconds - now_ : event;
  const bool both = up.flows() && down.flows();
  now_ = limited ? limit_seconds : now_ + event;
  const double flow = passed * (both ? link_.both_directions_share : 1);
  const bool up_flows = up.flows();
  const bool down_flows = down.flows();
  Pass(passed, flow, up);
  Pass(passed, flow, down);
  if (limited) return;
  const auto settle = [&](Queue& queue, double own_event, bool flowed) {
    if (own_event > event) return;
    if (!flowed) {
      queue.latency[queue.next] = 0;
    } else {
      queue.done_at[queue.next++] = now_;
    }
  };
  settle(up, up_event, up_flows);
  settle(down, down_event, down_flows);
}

void LinkSimulation::AdvanceTo(double seconds) {
  while (now_ < seconds) {
    if (!queues_[kUp].busy() && !queues_[kDown].busy()) {
      now_ = seconds;
    } else {
      Step(seconds);
    }
  }
}

double LinkSimulation::Finish(Direction direction, std::size_t number) {
  while (queues_[direction].next <= number) Step(std::numeric_limits<double>::infinity());
  return queues_[direction].done_at[number];
}

}  // namespace geminid::planner
