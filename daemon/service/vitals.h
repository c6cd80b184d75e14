// What the daemon's threads leave for whoever watches it.
#ifndef GEMINID_DAEMON_SERVICE_VITALS_H_
#define GEMINID_DAEMON_SERVICE_VITALS_H_

#include <atomic>
#include <cstdint>

#include "daemon/metrics/call_times.h"

namespace geminid::service {

// Thread-safe.
struct Vitals {
  std::atomic<bool> serving{false};   // the event loop runs
  std::atomic<bool> stopping{false};  // it is about to end
  // Since when the event loop has been at its present turn, monotonic; 0: it waits for something to
  // do. A turn takes well under a millisecond.
  std::atomic<int64_t> turn_since_nanoseconds{0};
  std::atomic<bool> last_reload_good{true};
  std::atomic<double> last_good_reload_seconds{0};  // since the Unix epoch
  metrics::CallTimes calls;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_VITALS_H_
