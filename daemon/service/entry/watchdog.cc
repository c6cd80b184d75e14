#include "daemon/service/entry/watchdog.h"

#include <systemd/sd-daemon.h>

#include "daemon/os/event.h"
#include "daemon/service/watch/health.h"

namespace geminid::service {
namespace {

// Half of what systemd waits, as sd_watchdog_enabled(3) advises.
int64_t PauseOfEnvironment() {
  uint64_t microseconds = 0;
  if (::sd_watchdog_enabled(0, &microseconds) <= 0) return 0;
  return static_cast<int64_t>(microseconds) * 1000 / 2;
}

}  // namespace

Watchdog::Watchdog(const Vitals* vitals) : Watchdog(vitals, PauseOfEnvironment()) {}

bool Watchdog::IsToBeFed(int64_t now_nanoseconds) {
  if (pause_nanoseconds_ == 0 || now_nanoseconds < next_) return false;
  next_ = now_nanoseconds + pause_nanoseconds_;
  return vitals_->LongestTurn(core::Time::FromNanoseconds(now_nanoseconds)) < kLongestTurn;
}

void Watchdog::Feed() {
  if (IsToBeFed(os::MonotonicNanoseconds())) ::sd_notify(0, "WATCHDOG=1");
}

std::optional<int64_t> Watchdog::NextDeadline() const {
  if (pause_nanoseconds_ == 0) return std::nullopt;
  return next_;
}

}  // namespace geminid::service
