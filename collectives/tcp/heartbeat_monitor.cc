#include "collectives/tcp/heartbeat_monitor.h"

#include <algorithm>

namespace geminid::collectives {
namespace {

constexpr absl::Duration kLongestTurn = absl::Milliseconds(200);

}  // namespace

HeartbeatMonitor::HeartbeatMonitor(absl::Duration silence, Time now)
    : silence_(silence), turn_(now), beat_(now) {}

bool HeartbeatMonitor::Turn(Time now) {
  awake_ += std::clamp(absl::FromChrono(now - turn_), absl::ZeroDuration(), kLongestTurn);
  turn_ = now;
  if (absl::FromChrono(now - beat_) < kBeatInterval) return false;
  beat_ = now;
  return true;
}

int HeartbeatMonitor::MillisecondsLeft(Time now) const {
  const absl::Duration left = kBeatInterval - absl::FromChrono(now - beat_);
  return static_cast<int>(absl::ToInt64Milliseconds(
      absl::Ceil(std::clamp(left, absl::ZeroDuration(), kBeatInterval), absl::Milliseconds(1))));
}

void HeartbeatMonitor::Heard(int who) { heard_[who] = awake_; }

void HeartbeatMonitor::Forget(int who) { heard_.erase(who); }

std::vector<int> HeartbeatMonitor::Silent() const {
  std::vector<int> silent;
  for (const auto& [who, heard] : heard_) {
    if (awake_ - heard > silence_) silent.push_back(who);
  }
  return silent;
}

}  // namespace geminid::collectives
