// Which devices the trainer accepts.
#include "training/settings/device_check.h"

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

TEST(CheckDevice, HostDevice_IsTakenWhereNoGpuWasAskedFor) {
  EXPECT_TRUE(CheckDevice(Device(DeviceKind::kHost), /*wants_gpu=*/false).ok());
}

TEST(CheckDevice, Gpu_IsTakenWhetherAskedForOrNot) {
  EXPECT_TRUE(CheckDevice(Device(DeviceKind::kCuda), /*wants_gpu=*/false).ok());
  EXPECT_TRUE(CheckDevice(Device(DeviceKind::kCuda), /*wants_gpu=*/true).ok());
}

TEST(CheckDevice, HostDeviceWhereAGpuWasAskedFor_IsRefusedByNameWithAWayOut) {
  const absl::Status status = CheckDevice(Device(DeviceKind::kHost), /*wants_gpu=*/true);
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("device 3, the third"));
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("geminictl status"));
}

}  // namespace
}  // namespace geminid::trainer
