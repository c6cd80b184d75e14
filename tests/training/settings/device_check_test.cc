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

TEST(CheckModelOnDevice, ExpertsOnAGpu_AreRefused) {
  const ModelConfig mixtral = *FindPreset("mixtral-tiny"), llama = *FindPreset("llama-tiny");
  EXPECT_TRUE(CheckModelOnDevice(mixtral, /*on_gpu=*/false).ok());
  EXPECT_TRUE(CheckModelOnDevice(llama, /*on_gpu=*/true).ok());
  const absl::Status status = CheckModelOnDevice(mixtral, /*on_gpu=*/true);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("does not support GPUs yet"));
}

}  // namespace
}  // namespace geminid::trainer
