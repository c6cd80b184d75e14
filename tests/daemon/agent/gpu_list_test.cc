#include "daemon/agent/gpu_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace geminid::agent {
namespace {

using gpu::NvmlDevice;
using gpu::NvmlResult;
using ::testing::ElementsAre;

TEST(LinuxPciName, Domain_HasFourDigitsAndLettersAreSmall) {
  EXPECT_EQ(LinuxPciName("00000000:3B:00.0"), "0000:3b:00.0");
  EXPECT_EQ(LinuxPciName("0000:3b:00.0"), "0000:3b:00.0");
  EXPECT_EQ(LinuxPciName(""), "");
}

TEST(ParseNumaNode, WhatIsNoNode_IsNone) {
  EXPECT_EQ(ParseNumaNode("1"), 1);
  EXPECT_EQ(ParseNumaNode("-1"), shm::kNoNumaNode);
  EXPECT_EQ(ParseNumaNode(""), shm::kNoNumaNode);
  EXPECT_EQ(ParseNumaNode("x"), shm::kNoNumaNode);
}

// Two GPUs, the second divided into two instances. The handles are numbers.
NvmlDevice Handle(uintptr_t number) { return reinterpret_cast<NvmlDevice>(number); }

NvmlResult Text(NvmlDevice device, char* text, const char* whole, const char* part) {
  const auto number = reinterpret_cast<uintptr_t>(device);
  std::strcpy(text, number < 20 ? whole : part);
  text[std::strlen(text) - 1] = static_cast<char>('0' + number % 10);
  return NvmlResult::kSuccess;
}

gpu::NvmlApi DividedMachine() {
  gpu::NvmlApi nvml;
  nvml.error_string = [](NvmlResult) { return "an error"; };
  nvml.device_get_count = [](unsigned* count) {
    *count = 2;
    return NvmlResult::kSuccess;
  };
  nvml.device_get_handle_by_index = [](unsigned index, NvmlDevice* device) {
    *device = Handle(10 + index);
    return NvmlResult::kSuccess;
  };
  nvml.device_get_uuid = [](NvmlDevice device, char* text, unsigned) {
    return Text(device, text, "GPU-00000000-0000-0000-0000-000000000000",
                "MIG-00000000-0000-0000-0000-000000000000");
  };
  nvml.device_get_name = [](NvmlDevice device, char* text, unsigned) {
    return Text(device, text, "GPU 0", "MIG 1g.10gb 0");
  };
  nvml.device_get_pci_info = [](NvmlDevice device, gpu::NvmlPciInfo* pci) {
    std::strcpy(pci->bus_id, device == Handle(10) ? "0000FFFF:3B:00.0" : "0000FFFF:5E:00.0");
    return device < Handle(20) ? NvmlResult::kSuccess : NvmlResult::kNotSupported;
  };
  nvml.device_get_gpu_of_mig_device = [](NvmlDevice device, NvmlDevice* whole) {
    *whole = Handle(11);
    return device < Handle(20) ? NvmlResult::kInvalidArgument : NvmlResult::kSuccess;
  };
  nvml.device_get_memory_info = [](NvmlDevice, gpu::NvmlMemory* memory) {
    *memory = {.total_bytes = 1000, .free_bytes = 600, .used_bytes = 400};
    return NvmlResult::kSuccess;
  };
  nvml.device_get_mig_mode = [](NvmlDevice device, unsigned* current, unsigned* pending) {
    *current = device == Handle(11) ? 1 : 0;
    *pending = 0;
    return NvmlResult::kSuccess;
  };
  nvml.device_get_max_mig_device_count = [](NvmlDevice, unsigned* most) {
    *most = 7;
    return NvmlResult::kSuccess;
  };
  nvml.device_get_mig_device_handle_by_index = [](NvmlDevice, unsigned index, NvmlDevice* device) {
    *device = Handle(20 + index);
    return index == 1 || index == 4 ? NvmlResult::kSuccess : NvmlResult::kNotFound;
  };
  return nvml;
}

std::vector<std::string> Uuids(const gpu::NvmlApi& nvml, std::vector<absl::Status>* silent) {
  const auto gpus = ListGpus(nvml, silent);
  EXPECT_TRUE(gpus.ok()) << gpus.status();
  std::vector<std::string> uuids;
  for (const GpuFacts& gpu : *gpus) {
    uuids.emplace_back(gpu.uuid);
    EXPECT_EQ(gpu.is_mig, uuids.back().starts_with("MIG-") ? 1u : 0u);
    EXPECT_EQ(gpu.free_bytes, 600u);
    const bool first = uuids.back() == "GPU-00000000-0000-0000-0000-000000000000";
    EXPECT_STREQ(gpu.pci, first ? "0000FFFF:3B:00.0" : "0000FFFF:5E:00.0");
  }
  return uuids;
}

TEST(ListGpus, DividedGpu_IsListedAsItsInstances) {
  std::vector<absl::Status> silent;
  EXPECT_THAT(Uuids(DividedMachine(), &silent),
              ElementsAre("GPU-00000000-0000-0000-0000-000000000000",
                          "MIG-00000000-0000-0000-0000-000000000001",
                          "MIG-00000000-0000-0000-0000-000000000004"));
  EXPECT_TRUE(silent.empty());
}

TEST(ListGpus, GpuThatDoesNotAnswer_IsLeftOut) {
  gpu::NvmlApi nvml = DividedMachine();
  nvml.device_get_memory_info = [](NvmlDevice device, gpu::NvmlMemory* memory) {
    *memory = {.total_bytes = 1000, .free_bytes = 600, .used_bytes = 400};
    return device == Handle(10) ? NvmlResult::kGpuIsLost : NvmlResult::kSuccess;
  };
  nvml.device_get_mig_mode = [](NvmlDevice, unsigned*, unsigned*) {
    return NvmlResult::kNotSupported;
  };
  std::vector<absl::Status> silent;
  EXPECT_THAT(Uuids(nvml, &silent), ElementsAre("GPU-00000000-0000-0000-0000-000000000001"));
  ASSERT_EQ(silent.size(), 1u);
  EXPECT_TRUE(absl::IsDataLoss(silent[0]));
}

TEST(ListGpus, NvmlThatFails_IsAnError) {
  gpu::NvmlApi nvml = DividedMachine();
  nvml.device_get_count = [](unsigned*) { return NvmlResult::kUnknown; };
  std::vector<absl::Status> silent;
  EXPECT_FALSE(ListGpus(nvml, &silent).ok());
}

}  // namespace
}  // namespace geminid::agent
