// Threads, whose number the system may limit.
#ifndef GEMINID_DAEMON_OS_START_THREAD_H_
#define GEMINID_DAEMON_OS_START_THREAD_H_

#include <functional>
#include <thread>

#include "absl/status/statusor.h"

namespace geminid::os {

// RESOURCE_EXHAUSTED where no further one may be started.
absl::StatusOr<std::thread> StartThread(std::function<void()> run);

}  // namespace geminid::os

#endif  // GEMINID_DAEMON_OS_START_THREAD_H_
