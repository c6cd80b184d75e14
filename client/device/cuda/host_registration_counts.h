// How much of a device's host memory is registered with the driver.
#ifndef GEMINID_CLIENT_DEVICE_CUDA_HOST_REGISTRATION_COUNTS_H_
#define GEMINID_CLIENT_DEVICE_CUDA_HOST_REGISTRATION_COUNTS_H_

#include <cstdint>
#include <functional>

namespace geminid::device {

struct HostRegistrationCounts {
  uint64_t given_bytes = 0;
  uint64_t registered_bytes = 0;
  uint64_t refused_bytes = 0;  // by the driver; their copies go through other memory permanently
  uint64_t given = 0;          // in pieces
  uint64_t registered = 0;
  uint64_t refused = 0;
};

// Called after each change by the thread that made it, one call at a time. It must be quick, and
// call no function of the device.
using HostRegistrationObserver = std::function<void(const HostRegistrationCounts&)>;

}  // namespace geminid::device

#endif  // GEMINID_CLIENT_DEVICE_CUDA_HOST_REGISTRATION_COUNTS_H_
