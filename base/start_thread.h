// Starts threads, whose number the system may limit.
#ifndef GEMINID_BASE_START_THREAD_H_
#define GEMINID_BASE_START_THREAD_H_

#include <functional>
#include <thread>

#include "absl/status/statusor.h"

namespace geminid::base {

// RESOURCE_EXHAUSTED if no further thread can be started.
absl::StatusOr<std::thread> StartThread(std::function<void()> run);

}  // namespace geminid::base

#endif  // GEMINID_BASE_START_THREAD_H_
