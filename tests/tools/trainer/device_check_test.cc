// Which devices the trainer takes.
#include "tools/trainer/device_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace geminid::trainer {
namespace {

DeviceDescription Device(DeviceKind kind) {
  DeviceDescription device;
  device.kind = kind;
  device.index = DeviceIndex{3};
  device.name = "the third";
  return device;
}

TEST(CheckDevice, HostDevice_IsTakenByAnyNumberOfRanks) {
  EXPECT_TRUE(CheckDevice(Device(DeviceKind::kHost), /*wants_gpu=*/false, 1).ok());
  EXPECT_TRUE(CheckDevice(Device(DeviceKind::kHost), /*wants_gpu=*/false, 4).ok());
}

TEST(CheckDevice, Gpu_IsTakenWhetherAskedForOrNot) {
  EXPECT_TRUE(CheckDevice(Device(DeviceKind::kCuda), /*wants_gpu=*/false, 1).ok());
  EXPECT_TRUE(CheckDevice(Device(DeviceKind::kCuda), /*wants_gpu=*/true, 1).ok());
}

TEST(CheckDevice, HostDeviceWhereAGpuWasAskedFor_IsRefusedByNameWithAWayOut) {
  const absl::Status status = CheckDevice(Device(DeviceKind::kHost), /*wants_gpu=*/true, 1);
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("device 3, the third"));
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("geminictl status"));
}

TEST(CheckDevice, GpuForSeveralRanks_IsRefusedByNameWithAWayOut) {
  const absl::Status status = CheckDevice(Device(DeviceKind::kCuda), /*wants_gpu=*/false, 2);
  EXPECT_TRUE(absl::IsUnimplemented(status));
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("device 3, the third"));
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("one rank"));
}

}  // namespace
}  // namespace geminid::trainer
