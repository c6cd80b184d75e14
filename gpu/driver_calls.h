// Tracks the calls of the GPU's driver that this process is in. A thread whose call does not return
// cannot report that itself; another thread can.
#ifndef GEMINID_GPU_DRIVER_CALLS_H_
#define GEMINID_GPU_DRIVER_CALLS_H_

#include <chrono>
#include <optional>

namespace geminid::gpu {

// While it lives, this thread is in a driver call. Calls nest; the outermost counts.
class DriverCall {
 public:
  DriverCall();
  DriverCall(const DriverCall&) = delete;
  DriverCall& operator=(const DriverCall&) = delete;
  ~DriverCall();
};

// How long the oldest call has lasted; empty: no thread is in the driver. Any thread.
std::optional<std::chrono::nanoseconds> LongestDriverCall();

}  // namespace geminid::gpu

#endif  // GEMINID_GPU_DRIVER_CALLS_H_
