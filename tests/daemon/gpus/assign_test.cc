#include "daemon/gpus/assign.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "daemon/config/device_settings.h"

namespace geminid::gpus {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kGiB = uint64_t{1} << 30;

std::string UuidOf(int number) {
  return absl::StrCat("GPU-00000000-0000-0000-0000-00000000000", number);
}

// GPUs of 100 GiB with 95 GiB free, at 00000000:3A:00.0 and so on.
std::vector<agent::GpuFacts> Gpus(int count) {
  std::vector<agent::GpuFacts> gpus;
  for (int i = 0; i < count; ++i) {
    agent::GpuFacts gpu = {};
    agent::SetText(UuidOf(i), gpu.uuid);
    agent::SetText(absl::StrCat("00000000:3", std::string(1, static_cast<char>('A' + i)), ":00.0"),
                   gpu.pci);
    agent::SetText("Some GPU", gpu.name);
    gpu.numa_node = i;
    gpu.total_bytes = 100 * kGiB;
    gpu.free_bytes = 95 * kGiB;
    gpus.push_back(gpu);
  }
  return gpus;
}

std::vector<config::DeviceSetting> Settings(const std::string& list) {
  v1::Config config;
  const auto devices = config::ParseDeviceList(list);
  EXPECT_TRUE(devices.ok()) << devices.status();
  for (const v1::Device& device : *devices) *config.add_device() = device;
  std::vector<config::DeviceSetting> settings;
  EXPECT_TRUE(config::ReadDevices(config, &settings).empty());
  return settings;
}

// The assignment as text: "host 1GiB, GPU-...0 90GiB, none".
std::string Assigned(const std::string& list,
                     const absl::StatusOr<std::vector<agent::GpuFacts>>& found) {
  const auto devices = AssignGpus(Settings(list), found);
  if (!devices.ok()) return std::string(devices.status().message());
  std::string text;
  for (const NodeDevice& device : *devices) {
    absl::StrAppend(&text, text.empty() ? "" : ", ");
    if (device.setting.kind == shm::DeviceKind::kHost) {
      absl::StrAppend(&text, "host ", device.setting.bytes / kGiB);
    } else if (device.gpu.has_value()) {
      absl::StrAppend(&text, "gpu ", std::string(device.gpu->uuid).back() - '0', " ",
                      device.setting.bytes / kGiB);
    } else {
      absl::StrAppend(&text, "none (", device.why_not, ")");
      EXPECT_EQ(device.setting.bytes, 0u);
    }
  }
  return text;
}

TEST(AssignGpus, GpusWithoutAName_ComeInTheirOrder) {
  EXPECT_EQ(Assigned("host:0=1GiB,cuda:1=8GiB,cuda:2", Gpus(3)), "host 1, gpu 0 8, gpu 1 90");
}

TEST(AssignGpus, Names_AreTakenFirst) {
  EXPECT_EQ(Assigned(absl::StrCat("cuda:0,cuda:1@0000:3a:00.0,cuda:2@", UuidOf(2)), Gpus(3)),
            "gpu 1 90, gpu 0 90, gpu 2 90");
  EXPECT_EQ(Assigned("cuda:0@00000000:3b:00.0", Gpus(3)), "gpu 1 90");
}

TEST(AssignGpus, AllGpus_FollowTheDevicesWithANumber) {
  EXPECT_EQ(Assigned("cuda", Gpus(2)), "gpu 0 90, gpu 1 90");
  EXPECT_EQ(Assigned("cuda,host:0=1GiB,cuda:1=2GiB@0000:3b:00.0", Gpus(3)),
            "host 1, gpu 1 2, gpu 0 90, gpu 2 90");
}

TEST(AssignGpus, SizeLeftOut_IsNineTenthsOrWhatIsFree) {
  std::vector<agent::GpuFacts> gpus = Gpus(1);
  gpus[0].free_bytes = 7 * kGiB + 3;
  EXPECT_EQ(Assigned("cuda", gpus), "gpu 0 7");
  const auto devices = AssignGpus(Settings("cuda"), gpus);
  EXPECT_EQ(devices->at(0).setting.bytes % kGranularityBytes, 0u);
}

TEST(AssignGpus, WithoutADriver_TheOtherDevicesKeepTheirNumbers) {
  const absl::Status none = absl::UnavailableError("no CUDA driver");
  EXPECT_EQ(Assigned("cuda:0,host:1=1GiB", none), "none (no CUDA driver), host 1");
  EXPECT_EQ(Assigned("host:0=1GiB,cuda", none), "host 1");
}

TEST(AssignGpus, MissingGpu_IsSaidWithThoseThatAreThere) {
  EXPECT_THAT(Assigned("cuda:0,cuda:1,cuda:2", Gpus(2)),
              AllOf(HasSubstr("gpu 0 90, gpu 1 90, none (no GPU is left for it; there are "),
                    HasSubstr(UuidOf(1))));
  EXPECT_THAT(
      Assigned("cuda:0,cuda:1@0000:ff:00.0", Gpus(1)),
      HasSubstr("none (no GPU is called 0000:ff:00.0; there are Some GPU at 00000000:3A:00.0"));
}

TEST(AssignGpus, NothingToServe_IsAnErrorThatSaysWhy) {
  EXPECT_THAT(
      Assigned("cuda", Gpus(0)),
      HasSubstr("no device can be served: there are none; or give the daemon a host device"));
  EXPECT_THAT(Assigned("cuda:0=1GiB", absl::UnavailableError("no CUDA driver")),
              HasSubstr("no device can be served: no CUDA driver"));
}

TEST(AssignGpus, OneGpuTwiceOrTooSmall_IsRefused) {
  EXPECT_THAT(Assigned(absl::StrCat("cuda:0@", UuidOf(0), ",cuda:1@0000:3a:00.0"), Gpus(2)),
              HasSubstr("device 1 names GPU 0000:3a:00.0, which another device has already"));
  EXPECT_THAT(Assigned("cuda:0=101GiB", Gpus(1)),
              AllOf(HasSubstr("device 0 cannot hand out 101"), HasSubstr("100")));
}

TEST(AssignGpus, DevicesOfTheHost_NeedNoDriver) {
  EXPECT_FALSE(WantsGpus(Settings("host:0=1GiB")));
  EXPECT_TRUE(WantsGpus(Settings("host:0=1GiB,cuda")));
}

}  // namespace
}  // namespace geminid::gpus
