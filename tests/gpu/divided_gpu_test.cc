// A GPU of the double that is divided into instances (MIG): what CUDA and NVML show a process of
// it. Each test is a process of its own, as in double_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>  // NOLINT(modernize-deprecated-headers): setenv
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "gpu/driver_api.h"
#include "gpu/nvml_api.h"
#include "tests/gpu/double/node.h"

namespace geminid::gpu_double {
namespace {

using gpu::NvmlDevice;
using gpu::NvmlResult;
using ::testing::ElementsAre;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr char kVisible[] = "CUDA_VISIBLE_DEVICES";

// Whether all expectations of `work` hold in a forked child.
bool HoldsInChild(const std::function<void()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    work();
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

gpu::DriverApi Driver() {
  gpu::DriverApi api;
  std::string error;
  EXPECT_TRUE(gpu::LoadDriverApi(&api, &error)) << error;
  EXPECT_EQ(api.init(0), CUDA_SUCCESS);
  return api;
}

gpu::NvmlApi Nvml() {
  gpu::NvmlApi api;
  std::string error;
  EXPECT_TRUE(gpu::LoadNvmlApi(&api, &error)) << error;
  EXPECT_EQ(api.init(), NvmlResult::kSuccess);
  return api;
}

std::string HexOf(const CUuuid& uuid) {
  std::string text;
  for (const char byte : uuid.bytes) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned char>(byte));
    text += digits;
  }
  return text;
}
std::string HexOf(const std::string& uuid) {
  std::string text;
  for (const char c : uuid.substr(4)) {  // "GPU-", "MIG-"
    if (c != '-') text += c;
  }
  return text;
}

// The UUIDs of the devices that this process sees, in CUDA's order.
std::vector<std::string> SeenUuids() {
  const gpu::DriverApi api = Driver();
  int count = 0;
  EXPECT_EQ(api.device_get_count(&count), CUDA_SUCCESS);
  std::vector<std::string> seen;
  for (int i = 0; i < count; ++i) {
    CUuuid uuid = {};
    EXPECT_EQ(api.device_get_uuid(&uuid, i), CUDA_SUCCESS);
    seen.push_back(HexOf(uuid));
  }
  return seen;
}

// GPU 0 divided into two instances, devices 2 and 3; and GPU 1.
class DividedGpu : public ::testing::Test {
 protected:
  ~DividedGpu() override { unsetenv(kVisible); }
  Node node_{{.devices = 2,
              .memory_bytes = 66 * kMiB,
              .instances = 2,
              .libcuda = GEMINID_CUDA_DOUBLE,
              .libnvml = GEMINID_NVML_DOUBLE}};
};

TEST_F(DividedGpu, ProcessThatNamesAnInstance_SeesItAlone) {
  for (const auto& [value, seen] : std::vector<std::pair<std::string, std::string>>{
           {InstanceUuidOf(0), InstanceUuidOf(0)},
           {InstanceUuidOf(1), InstanceUuidOf(1)},
           {InstanceUuidOf(1) + "," + InstanceUuidOf(0), InstanceUuidOf(1)},
           {UuidOf(1) + "," + InstanceUuidOf(1), InstanceUuidOf(1)},
           {"0", InstanceUuidOf(0)},
           {UuidOf(0), InstanceUuidOf(0)},
           {UuidOf(1), UuidOf(1)}}) {
    setenv(kVisible, value.c_str(), 1);
    const std::string expected = HexOf(seen);
    EXPECT_TRUE(HoldsInChild([&] { EXPECT_THAT(SeenUuids(), ElementsAre(expected)); })) << value;
  }
}

TEST_F(DividedGpu, ProcessThatNamesNothing_SeesTheFirstInstanceAlone) {
  EXPECT_TRUE(HoldsInChild([] {
    EXPECT_THAT(SeenUuids(), ElementsAre(HexOf(InstanceUuidOf(0))));
    char address[32] = "";
    EXPECT_EQ(Driver().device_get_pci_bus_id(address, sizeof(address), 0), CUDA_SUCCESS);
    EXPECT_EQ(address, PciBusIdOf(0).substr(4));  // the GPU's
  }));
}

TEST_F(DividedGpu, InstancesMemory_IsItsShareOfTheGpus) {
  setenv(kVisible, InstanceUuidOf(1).c_str(), 1);
  EXPECT_TRUE(HoldsInChild([&] {
    const gpu::DriverApi api = Driver();
    size_t bytes = 0;
    EXPECT_EQ(api.device_total_mem(&bytes, 0), CUDA_SUCCESS);
    EXPECT_EQ(bytes, 32 * kMiB);  // half, in whole granules
    CUcontext context = nullptr;
    ASSERT_EQ(api.primary_ctx_retain(&context, 0), CUDA_SUCCESS);
    ASSERT_EQ(api.ctx_set_current(context), CUDA_SUCCESS);
    CUdeviceptr address = 0;
    EXPECT_EQ(api.mem_alloc(&address, 33 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(api.mem_alloc(&address, 20 * kMiB), CUDA_SUCCESS);
    EXPECT_EQ(node_.used_bytes(2), 0u);
    EXPECT_EQ(node_.used_bytes(3), 20 * kMiB);
    EXPECT_EQ(node_.used_bytes(0), 20 * kMiB);
    EXPECT_EQ(node_.used_bytes(1), 0u);
  }));
}

TEST_F(DividedGpu, Nvml_ListsInstancesUnderTheirGpuAndLeavesPlacesFree) {
  EXPECT_TRUE(HoldsInChild([] {
    const gpu::NvmlApi nvml = Nvml();
    unsigned count = 0;
    EXPECT_EQ(nvml.device_get_count(&count), NvmlResult::kSuccess);
    EXPECT_EQ(count, 2u);
    NvmlDevice gpu = nullptr;
    ASSERT_EQ(nvml.device_get_handle_by_index(0, &gpu), NvmlResult::kSuccess);
    unsigned current = 0;
    unsigned pending = 0;
    EXPECT_EQ(nvml.device_get_mig_mode(gpu, &current, &pending), NvmlResult::kSuccess);
    EXPECT_EQ(current, 1u);
    unsigned most = 0;
    EXPECT_EQ(nvml.device_get_max_mig_device_count(gpu, &most), NvmlResult::kSuccess);
    EXPECT_EQ(most, 7u);
    std::vector<std::string> uuids;
    for (unsigned i = 0; i < most; ++i) {
      NvmlDevice instance = nullptr;
      const NvmlResult found = nvml.device_get_mig_device_handle_by_index(gpu, i, &instance);
      if (found == NvmlResult::kNotFound) continue;
      ASSERT_EQ(found, NvmlResult::kSuccess);
      char uuid[gpu::kNvmlTextBytes] = "";
      EXPECT_EQ(nvml.device_get_uuid(instance, uuid, sizeof(uuid)), NvmlResult::kSuccess);
      uuids.emplace_back(uuid);
    }
    EXPECT_THAT(uuids, ElementsAre(InstanceUuidOf(0), InstanceUuidOf(1)));
    NvmlDevice whole = nullptr;
    ASSERT_EQ(nvml.device_get_handle_by_index(1, &whole), NvmlResult::kSuccess);
    EXPECT_EQ(nvml.device_get_mig_mode(whole, &current, &pending), NvmlResult::kSuccess);
    EXPECT_EQ(current, 0u);
    EXPECT_EQ(nvml.device_get_handle_by_index(2, &gpu), NvmlResult::kInvalidArgument);
  }));
}

TEST_F(DividedGpu, InstancesHandle_DoesForWhatIsItsOwnAndNotForTheGpus) {
  EXPECT_TRUE(HoldsInChild([] {
    const gpu::NvmlApi nvml = Nvml();
    NvmlDevice instance = nullptr;
    const std::string name = InstanceUuidOf(1);
    ASSERT_EQ(nvml.device_get_handle_by_uuid(name.c_str(), &instance), NvmlResult::kSuccess);
    gpu::NvmlMemory memory = {};
    EXPECT_EQ(nvml.device_get_memory_info(instance, &memory), NvmlResult::kSuccess);
    EXPECT_EQ(memory.total_bytes, 32 * kMiB);
    char text[gpu::kNvmlTextBytes] = "";
    EXPECT_EQ(nvml.device_get_name(instance, text, sizeof(text)), NvmlResult::kSuccess);
    EXPECT_THAT(text, ::testing::HasSubstr(" MIG "));
    gpu::NvmlPciInfo pci = {};
    EXPECT_EQ(nvml.device_get_pci_info(instance, &pci), NvmlResult::kNotSupported);
    unsigned most = 0;
    EXPECT_EQ(nvml.device_get_max_mig_device_count(instance, &most), NvmlResult::kInvalidArgument);
    NvmlDevice gpu = nullptr;
    ASSERT_EQ(nvml.device_get_gpu_of_mig_device(instance, &gpu), NvmlResult::kSuccess);
    EXPECT_EQ(nvml.device_get_pci_info(gpu, &pci), NvmlResult::kSuccess);
    EXPECT_EQ(pci.bus_id, PciBusIdOf(0));
    EXPECT_EQ(nvml.device_get_memory_info(gpu, &memory), NvmlResult::kSuccess);
    EXPECT_EQ(memory.total_bytes, 66 * kMiB);
    EXPECT_EQ(nvml.device_get_gpu_of_mig_device(gpu, &gpu), NvmlResult::kInvalidArgument);
  }));
}

TEST_F(DividedGpu, GpuThatIsLost_TakesItsInstancesAlong) {
  node_.SetLost(0, true);
  EXPECT_TRUE(HoldsInChild([] {
    const gpu::NvmlApi nvml = Nvml();
    NvmlDevice instance = nullptr;
    const std::string name = InstanceUuidOf(0);
    EXPECT_EQ(nvml.device_get_handle_by_uuid(name.c_str(), &instance), NvmlResult::kGpuIsLost);
    CUcontext context = nullptr;
    EXPECT_EQ(Driver().primary_ctx_retain(&context, 0), CUDA_ERROR_UNKNOWN);
  }));
}

}  // namespace
}  // namespace geminid::gpu_double
