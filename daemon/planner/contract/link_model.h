#ifndef GEMINID_DAEMON_PLANNER_CONTRACT_LINK_MODEL_H_
#define GEMINID_DAEMON_PLANNER_CONTRACT_LINK_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/planner/contract/trace.h"

namespace geminid::planner {

// Bytes per second of one rank in one direction, while all ranks behind the uplink transfer and the
// other direction is idle.
double UpBytesPerSecond(const LinkModel& link);
double DownBytesPerSecond(const LinkModel& link);

// The least time in which both directions finish their work. Alone, they take `up_seconds` and
// `down_seconds`. With share s, x seconds of both at once do s x of either. So the time is up +
// down - (2 s - 1) x, which is least for x = min(up, down) / s.
double BothDirectionsSeconds(const LinkModel& link, double up_seconds, double down_seconds);

// A simulation of the link. Each direction serves its transfers one after another. While bytes of
// both directions flow, both are slowed to their share. Latency delays only its own direction. The
// simulation is exact: time passes from event to event.
class LinkSimulation {
 public:
  enum Direction : std::size_t { kUp = 0, kDown = 1 };

  explicit LinkSimulation(const LinkModel& link) : link_(link) {}

  // Queues a transfer at the present moment and returns its number in this direction, from 0.
  std::size_t Send(Direction direction, std::uint64_t bytes);

  // Lets time pass until `seconds`, which must not lie in the past.
  void AdvanceTo(double seconds);

  // Lets time pass until the transfer is done. Returns when it was done, which may be in the past.
  double Finish(Direction direction, std::size_t number);

  double now() const { return now_; }

 private:
  struct Queue {
    // For each transfer: the remaining seconds of latency, and the remaining seconds at full speed.
    std::vector<double> latency, work;
    std::vector<double> done_at;
    std::size_t next = 0;  // the first transfer not done

    bool busy() const { return next < work.size(); }
    bool flows() const { return busy() && latency[next] <= 0; }
  };

  double SecondsToEvent(const Queue& queue, const Queue& other) const;
  void Pass(double seconds, double flow_seconds, Queue& queue) const;
  void Step(double limit_seconds);

  const LinkModel link_;
  Queue queues_[2];
  double now_ = 0;
};

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_CONTRACT_LINK_MODEL_H_
