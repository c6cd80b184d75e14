// Which devices the trainer takes.
#include "tools/trainer/device_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace geminid::trainer {
namespace {

TEST(CheckDevice, HostDevice_IsTaken) {
  DeviceDescription device;
  device.kind = DeviceKind::kHost;
  EXPECT_TRUE(CheckDevice(device).ok());
}

TEST(CheckDevice, Gpu_IsRefusedByNameWithAWayOut) {
  DeviceDescription device;
  device.kind = DeviceKind::kCuda;
  device.index = DeviceIndex{3};
  device.name = "NVIDIA H200";
  const absl::Status status = CheckDevice(device);
  EXPECT_TRUE(absl::IsUnimplemented(status));
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("device 3, NVIDIA H200"));
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("host:1=16GiB"));
}

}  // namespace
}  // namespace geminid::trainer
