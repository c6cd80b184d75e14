#include "tests/client/device/device_implementations.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "client/device/cuda/cuda_device.h"
#include "gpu/driver.h"

namespace geminid::device {
namespace {

constexpr uint64_t kMemoryBytes = uint64_t{1} << 30;

const gpu::DriverApi& Driver() {
  CudaNode();  // the node must exist before the driver is loaded
  const absl::StatusOr<const gpu::DriverApi*> api = gpu::LoadDriver();
  if (api.ok()) return **api;
  ADD_FAILURE() << api.status();
  std::abort();
}

// Makes a slab, as the daemon's agent does for an arena.
base::UniqueFd MakeSlab(uint64_t bytes) {
  const gpu::DriverApi& api = Driver();
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemGenericAllocationHandle handle = 0;
  int fd = -1;
  EXPECT_EQ(api.mem_create(&handle, bytes, &properties, 0), CUDA_SUCCESS);
  EXPECT_EQ(api.mem_export(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), CUDA_SUCCESS);
  EXPECT_EQ(api.mem_release(handle), CUDA_SUCCESS);
  return base::UniqueFd(fd);
}

StreamHandle MakeTrainersStream() {
  const gpu::DriverApi& api = Driver();
  CUcontext context = nullptr;
  CUcontext popped = nullptr;
  CUstream stream = nullptr;
  EXPECT_EQ(api.primary_ctx_retain(&context, 0), CUDA_SUCCESS);
  EXPECT_EQ(api.ctx_push_current(context), CUDA_SUCCESS);
  EXPECT_EQ(api.stream_create(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  EXPECT_EQ(api.ctx_pop_current(&popped), CUDA_SUCCESS);
  return {stream};
}

}  // namespace

gpu_double::Node* CudaNode() {
  static gpu_double::Node* const node = [] {
    const bool is_real = std::getenv("GEMINID_CONFORMANCE_ON_REAL_DRIVER") != nullptr;
    return is_real ? nullptr
                   : new gpu_double::Node({.memory_bytes = kMemoryBytes,
                                           .libcuda = GEMINID_CUDA_DOUBLE,
                                           .libnvml = GEMINID_NVML_DOUBLE,
                                           .kernels = GEMINID_DOUBLE_KERNELS});
  }();
  return node;
}

Implementation OnCuda(const CudaDeviceOptions& options, const std::string& name) {
  Implementation cuda;
  cuda.name = name;
  cuda.page_bytes = uint64_t{2} << 20;
  cuda.make = [options] {
    CudaNode();
    absl::StatusOr<std::unique_ptr<Device>> device = MakeCudaDevice(options);
    EXPECT_TRUE(device.ok()) << device.status();
    return device.ok() ? *std::move(device) : nullptr;
  };
  cuda.make_slab = MakeSlab;
  cuda.make_handle = [](Device&) { return MakeTrainersStream(); };
  return cuda;
}

}  // namespace geminid::device
