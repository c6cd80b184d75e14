// Which calls of the GPU's driver this process is in, so that one that does not return is noticed:
// whoever made it cannot say so.
#ifndef GEMINID_GPU_DRIVER_CALLS_H_
#define GEMINID_GPU_DRIVER_CALLS_H_

#include <chrono>
#include <optional>

namespace geminid::gpu {

// This thread uses the driver for as long as it lives. They nest; the outermost counts.
class DriverCall {
 public:
  DriverCall();
  DriverCall(const DriverCall&) = delete;
  DriverCall& operator=(const DriverCall&) = delete;
  ~DriverCall();
};

// How long the one that began first has lasted; none: no thread is in the driver. Any thread.
std::optional<std::chrono::nanoseconds> LongestDriverCall();

}  // namespace geminid::gpu

#endif  // GEMINID_GPU_DRIVER_CALLS_H_
