// The device of machines without one: its memory is host memory of hard capacity, its copy engines
// are threads, and its links can be given the speed of real ones.
#ifndef GEMINID_CLIENT_DEVICE_HOST_HOST_DEVICE_H_
#define GEMINID_CLIENT_DEVICE_HOST_HOST_DEVICE_H_

#include <memory>

#include "client/device/device.h"

namespace geminid::device {

struct HostDeviceOptions {
  double copy_bytes_per_second = 0;  // of each direction; 0: as fast as memcpy
  double copy_latency_seconds = 0;
  // As with a GPU, only copies and operations touch the arena: other code that does is killed.
  bool strict = false;
};

// Starts three threads.
std::unique_ptr<Device> MakeHostDevice(const HostDeviceOptions& options);

}  // namespace geminid::device

#endif  // GEMINID_CLIENT_DEVICE_HOST_HOST_DEVICE_H_
