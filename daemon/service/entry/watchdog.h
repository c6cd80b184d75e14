// Tells systemd's watchdog that the daemon's event loops turn.
#ifndef GEMINID_DAEMON_SERVICE_ENTRY_WATCHDOG_H_
#define GEMINID_DAEMON_SERVICE_ENTRY_WATCHDOG_H_

#include <cstdint>
#include <optional>

#include "daemon/service/watch/vitals.h"

namespace geminid::service {

// Belongs to the event loop's thread.
class Watchdog {
 public:
  // Asks the environment whether systemd watches (WatchdogSec=). `vitals` outlives it.
  explicit Watchdog(const Vitals* vitals);
  // With this pause between two messages; 0: systemd does not watch.
  Watchdog(const Vitals* vitals, int64_t pause_nanoseconds)
      : vitals_(vitals), pause_nanoseconds_(pause_nanoseconds) {}

  // True: a message is due at this time, and no loop has been at its turn for too long.
  bool IsToBeFed(int64_t now_nanoseconds);
  // Sends the message, if it is due.
  void Feed();
  // When the next message is due.
  std::optional<int64_t> NextDeadline() const;

 private:
  const Vitals* const vitals_;
  const int64_t pause_nanoseconds_;
  int64_t next_ = 0;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_ENTRY_WATCHDOG_H_
