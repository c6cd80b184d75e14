// The two clocks: one for measuring, one for time stamps.
#ifndef GEMINID_BASE_CLOCK_H_
#define GEMINID_BASE_CLOCK_H_

#include <chrono>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace geminid::base {

// For deadlines, timeouts and durations: unaffected by steps of the wall clock. All processes of
// one host share it. Only differences have a meaning: it counts from an arbitrary instant of the
// host, so it must not be printed or sent to another host.
inline absl::Time MonotonicNow() {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

// The time of day, only for time stamps in logs, file names and metrics: it may step back and forth
// at any time. tests/layering lists the files that may use it.
inline absl::Time WallClockNow() { return absl::Now(); }

}  // namespace geminid::base

#endif  // GEMINID_BASE_CLOCK_H_
