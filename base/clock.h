// The two clocks: one to measure by, one to stamp by.
#ifndef GEMINID_BASE_CLOCK_H_
#define GEMINID_BASE_CLOCK_H_

#include <chrono>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace geminid::base {

// For deadlines, timeouts and durations: a step of the wall clock does not move this clock. All
// processes of one host share it. Only differences mean something: it counts from an instant of the
// host's own, so it is never printed and never sent to another host.
inline absl::Time MonotonicNow() {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

// The time of day, for stamps in logs, file names and metrics alone: it may step back and forth at
// any time. tests/layering lists the files that may ask for it.
inline absl::Time WallClockNow() { return absl::Now(); }

}  // namespace geminid::base

#endif  // GEMINID_BASE_CLOCK_H_
