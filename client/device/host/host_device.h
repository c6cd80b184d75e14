// The device of machines without an accelerator. Its memory is host memory with a hard limit, its
// copy engines are threads, and its links can be slowed to the speed of real ones.
#ifndef GEMINID_CLIENT_DEVICE_HOST_HOST_DEVICE_H_
#define GEMINID_CLIENT_DEVICE_HOST_HOST_DEVICE_H_

#include <memory>

#include "client/device/device.h"

namespace geminid::device {

struct HostDeviceOptions {
  double copy_bytes_per_second = 0;  // for each direction; 0: as fast as memcpy
  double copy_latency_seconds = 0;
  // As on a GPU, only copies and operations can touch the arena: other code that does is killed.
  bool strict = false;
};

// Starts three threads.
std::unique_ptr<Device> MakeHostDevice(const HostDeviceOptions& options);

}  // namespace geminid::device

#endif  // GEMINID_CLIENT_DEVICE_HOST_HOST_DEVICE_H_
