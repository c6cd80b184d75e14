// The devices for the conformance suites: all of this machine, and a GPU through the driver's
// double. With GEMINID_CONFORMANCE_ON_REAL_DRIVER=1 the machine's own GPU replaces the double.
#ifndef GEMINID_TESTS_CLIENT_DEVICE_DEVICE_IMPLEMENTATIONS_H_
#define GEMINID_TESTS_CLIENT_DEVICE_DEVICE_IMPLEMENTATIONS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "client/device/cuda/cuda_device.h"
#include "client/device/device.h"
#include "client/device/host/host_device.h"
#include "tests/client/memory_files.h"
#include "tests/gpu/double/node.h"

namespace geminid::device {

struct Implementation {
  std::string name;
  std::function<std::unique_ptr<Device>()> make;
  uint64_t page_bytes = 4096;
  std::function<base::UniqueFd(uint64_t bytes)> make_slab = [](uint64_t bytes) {
    return geminid::testing::MakeMemoryFile(bytes);
  };
  // Makes a stream as the trainer has one. The stream lives as long as the process.
  std::function<StreamHandle(Device& device)> make_handle = [](Device& device) {
    return StreamHandle{&device.compute_stream()};
  };
};

inline Implementation OnHost(const std::string& name, const HostDeviceOptions& options) {
  return {name, [options] { return MakeHostDevice(options); }};
}

// The first call decides for the whole process whether the driver is the double.
Implementation OnCuda(const CudaDeviceOptions& options = {}, const std::string& name = "Cuda");
// The double's node; null on a real driver.
gpu_double::Node* CudaNode();

}  // namespace geminid::device

#endif  // GEMINID_TESTS_CLIENT_DEVICE_DEVICE_IMPLEMENTATIONS_H_
