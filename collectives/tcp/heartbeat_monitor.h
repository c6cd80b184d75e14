// Heartbeats: both ends of a connection send them, and a peer that is silent for too long counts as
// dead. Pure: callers pass the time.
#ifndef GEMINID_COLLECTIVES_TCP_HEARTBEAT_MONITOR_H_
#define GEMINID_COLLECTIVES_TCP_HEARTBEAT_MONITOR_H_

#include <chrono>
#include <map>
#include <vector>

#include "absl/time/time.h"

namespace geminid::collectives {

inline constexpr absl::Duration kBeatInterval = absl::Milliseconds(100);
// A lost host is noticed after this time and one beat: within the promised two seconds.
inline constexpr absl::Duration kDefaultSilence = absl::Milliseconds(1200);
// With a shorter limit, one or two late heartbeats would count as a death.
inline constexpr absl::Duration kShortestSilence = absl::Milliseconds(500);

// For a loop that in each turn takes the time, reads all input, and asks which peers are silent.
//
// Only time in which the loop runs counts: a turn counts as at most two intervals, however long the
// process was stopped or not scheduled. Peers are not dead because this process did not listen.
class HeartbeatMonitor {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // InfiniteDuration(): no peer is ever dead.
  HeartbeatMonitor(absl::Duration silence, Time now);

  // Whether this turn must send heartbeats.
  bool Turn(Time now);
  // Milliseconds until the next turn must begin, for poll(2).
  int MillisecondsLeft(Time now) const;

  void Heard(int who);
  void Forget(int who);
  // The peers that were heard, but were silent for too long at the turn's time.
  std::vector<int> Silent() const;

 private:
  const absl::Duration silence_;
  Time turn_;
  Time beat_;
  absl::Duration awake_ = absl::ZeroDuration();  // since the beginning
  std::map<int, absl::Duration> heard_;          // in terms of awake_
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_TCP_HEARTBEAT_MONITOR_H_
