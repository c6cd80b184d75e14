// The clock of the engine and of the waker.
#ifndef GEMINID_DAEMON_SERVICE_SESSIONS_NOW_H_
#define GEMINID_DAEMON_SERVICE_SESSIONS_NOW_H_

#include "daemon/core/basics/time.h"
#include "daemon/os/event.h"

namespace geminid::service {

// By the monotonic clock.
inline core::Time Now() { return core::Time::FromNanoseconds(os::MonotonicNanoseconds()); }

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_SESSIONS_NOW_H_
