#include "tests/collectives/nccl/nccl_world.h"

#include <gtest/gtest.h>

#include <string>

namespace geminid::collectives {

gpu_double::NodeOptions NodeWithNccl(int devices) {
  return {.devices = devices,
          .libcuda = GEMINID_CUDA_DOUBLE,
          .libnvml = GEMINID_NVML_DOUBLE,
          .kernels = GEMINID_DOUBLE_KERNELS,
          .libnccl = GEMINID_NCCL_DOUBLE};
}

NcclPlace PlaceOf(int index) {
  std::string error;
  const gpu::DriverApi* const driver = gpu::ProcessDriver(&error);
  EXPECT_NE(driver, nullptr) << error;
  NcclPlace place = {.driver = driver};
  EXPECT_EQ(driver->device_get(&place.device, index), CUDA_SUCCESS);
  EXPECT_EQ(driver->primary_ctx_retain(&place.context, place.device), CUDA_SUCCESS);
  return place;
}

}  // namespace geminid::collectives
