// The behaviour of NVML that the project relies on: on the double or, with --real-driver, on the
// machine's own library and its first GPU, divided or not.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "gpu/nvml_api.h"
#include "tests/gpu/conformance_fixture.h"

namespace geminid::gpu {
namespace {

constexpr unsigned kMigEnabled = 1;

class NvmlConformance : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string error;
    ASSERT_TRUE(LoadNvmlApi(&nvml_, &error)) << error;
    ASSERT_EQ(nvml_.init(), NvmlResult::kSuccess);
    ASSERT_EQ(nvml_.device_get_handle_by_index(0, &gpu_), NvmlResult::kSuccess);
  }

  std::string UuidOf(NvmlDevice device) const {
    char uuid[kNvmlTextBytes] = "";
    EXPECT_EQ(nvml_.device_get_uuid(device, uuid, sizeof(uuid)), NvmlResult::kSuccess);
    return uuid;
  }
  bool IsDivided() const {
    unsigned current = 0;
    unsigned pending = 0;
    const NvmlResult result = nvml_.device_get_mig_mode(gpu_, &current, &pending);
    EXPECT_TRUE(result == NvmlResult::kSuccess || result == NvmlResult::kNotSupported);
    return result == NvmlResult::kSuccess && current == kMigEnabled;
  }

  NvmlApi nvml_;
  NvmlDevice gpu_ = nullptr;
};

TEST_F(NvmlConformance, Library_SaysItsDriversVersionAndWhatErrorsMean) {
  char version[kNvmlTextBytes] = "";
  EXPECT_EQ(nvml_.system_get_driver_version(version, sizeof(version)), NvmlResult::kSuccess);
  EXPECT_GT(std::strlen(version), 0u);
  EXPECT_EQ(nvml_.system_get_driver_version(version, 1), NvmlResult::kInsufficientSize);
  EXPECT_GT(std::strlen(nvml_.error_string(NvmlResult::kGpuIsLost)), 0u);
  EXPECT_EQ(nvml_.init(), NvmlResult::kSuccess);  // init may be repeated
}

TEST_F(NvmlConformance, Gpus_AreCountedAndFoundByIndexUuidAndPciAddress) {
  unsigned count = 0;
  ASSERT_EQ(nvml_.device_get_count(&count), NvmlResult::kSuccess);
  ASSERT_GT(count, 0u);
  NvmlDevice none = nullptr;
  EXPECT_EQ(nvml_.device_get_handle_by_index(count, &none), NvmlResult::kInvalidArgument);
  for (unsigned i = 0; i < count; ++i) {
    NvmlDevice device = nullptr;
    NvmlDevice same = nullptr;
    ASSERT_EQ(nvml_.device_get_handle_by_index(i, &device), NvmlResult::kSuccess);
    EXPECT_EQ(nvml_.device_get_handle_by_uuid(UuidOf(device).c_str(), &same), NvmlResult::kSuccess);
    EXPECT_EQ(UuidOf(same), UuidOf(device));
    NvmlPciInfo pci = {};
    ASSERT_EQ(nvml_.device_get_pci_info(device, &pci), NvmlResult::kSuccess);
    ASSERT_EQ(nvml_.device_get_handle_by_pci_bus_id(pci.bus_id, &same), NvmlResult::kSuccess);
    EXPECT_EQ(UuidOf(same), UuidOf(device));
  }
  const char unknown[] = "GPU-00000000-1111-2222-3333-444444444444";
  EXPECT_EQ(nvml_.device_get_handle_by_uuid(unknown, &none), NvmlResult::kNotFound);
}

TEST_F(NvmlConformance, PciAddress_IsThatOfItsParts) {
  NvmlPciInfo pci = {};
  ASSERT_EQ(nvml_.device_get_pci_info(gpu_, &pci), NvmlResult::kSuccess);
  char expected[32];
  std::snprintf(expected, sizeof(expected), "%08X:%02X:%02X.0", pci.domain, pci.bus, pci.device);
  EXPECT_STREQ(pci.bus_id, expected);
  char name[kNvmlTextBytes] = "";
  EXPECT_EQ(nvml_.device_get_name(gpu_, name, sizeof(name)), NvmlResult::kSuccess);
  EXPECT_GT(std::strlen(name), 0u);
}

TEST_F(NvmlConformance, Memory_IsNoMoreThanThereIs) {
  NvmlMemory memory = {};
  ASSERT_EQ(nvml_.device_get_memory_info(gpu_, &memory), NvmlResult::kSuccess);
  EXPECT_GT(memory.total_bytes, 0u);
  EXPECT_LE(memory.used_bytes, memory.total_bytes);
  EXPECT_LE(memory.free_bytes, memory.total_bytes - memory.used_bytes);
}

TEST_F(NvmlConformance, PersistenceMode_IsOnOrOff) {
  int mode = -1;
  const NvmlResult result = nvml_.device_get_persistence_mode(gpu_, &mode);
  if (result == NvmlResult::kNotSupported) GTEST_SKIP();
  EXPECT_EQ(result, NvmlResult::kSuccess);
  EXPECT_TRUE(mode == 0 || mode == 1) << mode;
}

TEST_F(NvmlConformance, Processes_AreNoMoreThanThereIsRoomFor) {
  constexpr unsigned kRoom = 256;
  std::vector<NvmlProcess> processes(kRoom);
  unsigned count = kRoom;
  const NvmlResult result =
      nvml_.device_get_compute_running_processes(gpu_, &count, processes.data());
  if (result == NvmlResult::kNotSupported || result == NvmlResult::kNoPermission) GTEST_SKIP();
  ASSERT_EQ(result, NvmlResult::kSuccess);
  ASSERT_LE(count, kRoom);
  for (unsigned i = 0; i < count; ++i) EXPECT_GT(processes[i].pid, 0u);
}

// Whether a GPU, a library or the user's permissions may cause this result.
bool IsLeftOut(NvmlResult result) {
  return result == NvmlResult::kNotSupported || result == NvmlResult::kNoPermission;
}

TEST_F(NvmlConformance, UncorrectedErrors_AreNoMoreSinceTheDriverWasLoadedThanEver) {
  if (nvml_.device_get_total_ecc_errors == nullptr) GTEST_SKIP() << "not in this library";
  unsigned long long since_load = 0;
  unsigned long long ever = 0;
  const NvmlResult result = nvml_.device_get_total_ecc_errors(gpu_, kNvmlUncorrectedErrors,
                                                              kNvmlVolatileCounter, &since_load);
  if (IsLeftOut(result)) GTEST_SKIP() << "no ECC, or it is off";
  ASSERT_EQ(result, NvmlResult::kSuccess);
  ASSERT_EQ(
      nvml_.device_get_total_ecc_errors(gpu_, kNvmlUncorrectedErrors, kNvmlAggregateCounter, &ever),
      NvmlResult::kSuccess);
  EXPECT_LE(since_load, ever);
}

TEST_F(NvmlConformance, RetiredPages_ArePendingOrNot) {
  if (nvml_.device_get_retired_pages_pending_status == nullptr) GTEST_SKIP();
  int pending = -1;
  const NvmlResult result = nvml_.device_get_retired_pages_pending_status(gpu_, &pending);
  if (IsLeftOut(result)) GTEST_SKIP() << "the GPU remaps rows instead";
  EXPECT_EQ(result, NvmlResult::kSuccess);
  EXPECT_TRUE(pending == 0 || pending == 1) << pending;
}

TEST_F(NvmlConformance, RowRemaps_ArePendingOrFailedOrNot) {
  if (nvml_.device_get_remapped_rows == nullptr) GTEST_SKIP();
  unsigned corrected = 0;
  unsigned uncorrected = 0;
  unsigned pending = 7;
  unsigned failed = 7;
  const NvmlResult result =
      nvml_.device_get_remapped_rows(gpu_, &corrected, &uncorrected, &pending, &failed);
  if (IsLeftOut(result)) GTEST_SKIP() << "an older GPU, or one that is divided";
  EXPECT_EQ(result, NvmlResult::kSuccess);
  EXPECT_LE(pending, 1u);
  EXPECT_LE(failed, 1u);
}

TEST_F(NvmlConformance, WaitForEvents_EndsWhenNoneComes) {
  if (nvml_.event_set_create == nullptr || nvml_.event_set_wait == nullptr) GTEST_SKIP();
  NvmlEventSet set = nullptr;
  ASSERT_EQ(nvml_.event_set_create(&set), NvmlResult::kSuccess);
  const NvmlResult result = nvml_.device_register_events(gpu_, kNvmlXidEvents, set);
  if (!IsLeftOut(result)) {
    EXPECT_EQ(result, NvmlResult::kSuccess);
    NvmlEventData event = {};
    EXPECT_EQ(nvml_.event_set_wait(set, &event, 0), NvmlResult::kTimeout);
    EXPECT_EQ(nvml_.event_set_wait(set, &event, 1), NvmlResult::kTimeout);
  }
  EXPECT_EQ(nvml_.event_set_free(set), NvmlResult::kSuccess);
}

TEST_F(NvmlConformance, NumberOfAnInstance_IsAnInstancesAlone) {
  if (nvml_.device_get_gpu_instance_id == nullptr) GTEST_SKIP();
  unsigned number = 0;
  EXPECT_NE(nvml_.device_get_gpu_instance_id(gpu_, &number), NvmlResult::kSuccess);
  unsigned most = 0;
  if (!IsDivided() || nvml_.device_get_max_mig_device_count(gpu_, &most) != NvmlResult::kSuccess) {
    return;
  }
  for (unsigned i = 0; i < most; ++i) {
    NvmlDevice instance = nullptr;
    const NvmlResult found = nvml_.device_get_mig_device_handle_by_index(gpu_, i, &instance);
    if (found != NvmlResult::kSuccess) continue;
    EXPECT_EQ(nvml_.device_get_gpu_instance_id(instance, &number), NvmlResult::kSuccess);
    EXPECT_NE(number, kNvmlNoInstance);
  }
}

TEST_F(NvmlConformance, Instances_KnowTheirGpuAndAWholeGpuHasNone) {
  unsigned most = 0;
  const NvmlResult counted = nvml_.device_get_max_mig_device_count(gpu_, &most);
  if (counted == NvmlResult::kNotSupported) most = 0;
  if (!IsDivided()) {
    NvmlDevice instance = nullptr;
    EXPECT_NE(nvml_.device_get_mig_device_handle_by_index(gpu_, 0, &instance),
              NvmlResult::kSuccess);
    NvmlDevice other = nullptr;
    EXPECT_NE(nvml_.device_get_gpu_of_mig_device(gpu_, &other), NvmlResult::kSuccess);
    return;
  }
  ASSERT_EQ(counted, NvmlResult::kSuccess);
  for (unsigned i = 0; i < most; ++i) {
    NvmlDevice instance = nullptr;
    const NvmlResult found = nvml_.device_get_mig_device_handle_by_index(gpu_, i, &instance);
    if (found == NvmlResult::kNotFound) continue;  // a place without one
    ASSERT_EQ(found, NvmlResult::kSuccess);
    NvmlDevice whole = nullptr;
    ASSERT_EQ(nvml_.device_get_gpu_of_mig_device(instance, &whole), NvmlResult::kSuccess);
    EXPECT_EQ(UuidOf(whole), UuidOf(gpu_));
    EXPECT_TRUE(UuidOf(instance).starts_with("MIG-")) << UuidOf(instance);
  }
}

}  // namespace
}  // namespace geminid::gpu
