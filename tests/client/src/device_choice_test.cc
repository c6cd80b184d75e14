// The device that a session asks for, and the session's facts about the device that it got.
#include "client/src/device_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "geminid/session.h"
#include "tests/daemon_env/daemon_env.h"

namespace geminid {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr uint64_t kMiB = uint64_t{1} << 20;

TEST(WantedDevice, OptionBeatsTheEnvironmentAndNothingIsAny) {
  EXPECT_EQ(*WantedDevice(std::nullopt, nullptr), shm::kAnyDevice);
  EXPECT_EQ(*WantedDevice(std::nullopt, ""), shm::kAnyDevice);
  EXPECT_EQ(*WantedDevice(std::nullopt, "3"), shm::DeviceIndex{3});
  EXPECT_EQ(*WantedDevice(DeviceIndex{0}, "3"), shm::DeviceIndex{0});
}

TEST(WantedDevice, WhatIsNoIndex_IsRefused) {
  for (const char* text : {"-1", "+1", "1 ", "one", "0x1", "99999999999"}) {
    const absl::Status status = WantedDevice(std::nullopt, text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), StartsWith("GEMINID_DEVICE=\""));
  }
  EXPECT_THAT(std::string(WantedDevice(DeviceIndex{64}, nullptr).status().message()),
              HasSubstr("indices go from 0 to 63"));
}

class DeviceChoice : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(env_.Start({.device = "host:0=8MiB,host:1=16MiB"}).ok());
    options_.socket = env_.socket();
    options_.world_size = 4;
    options_.local_world_size = 4;
  }
  absl::StatusOr<DeviceIndex> DeviceOfRank(int rank) {
    options_.rank = options_.local_rank = rank;
    const absl::StatusOr<std::unique_ptr<Session>> session = Session::Connect(options_);
    if (!session.ok()) return session.status();
    return (*session)->device_description().index;
  }

  testing::DaemonEnv env_;
  ConnectOptions options_;
};

TEST_F(DeviceChoice, Ranks_AreSpreadInTurnByLocalRank) {
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(DeviceOfRank(rank).value(), DeviceIndex{static_cast<uint32_t>(rank % 2)});
  }
  options_.device = DeviceIndex{1};
  EXPECT_EQ(DeviceOfRank(0).value(), DeviceIndex{1});
}

TEST_F(DeviceChoice, Description_IsTheDaemons) {
  options_.device = DeviceIndex{1};
  options_.device_memory_bytes = kMiB;
  const absl::StatusOr<std::unique_ptr<Session>> session = Session::Connect(options_);
  ASSERT_TRUE(session.ok()) << session.status();
  const DeviceDescription& device = (*session)->device_description();
  EXPECT_EQ(device.kind, DeviceKind::kHost);
  EXPECT_EQ(device.name, "host device 1");
  EXPECT_EQ(device.capacity_bytes, 16 * kMiB);
  EXPECT_EQ(device.granularity_bytes, 4096u);
  EXPECT_EQ(device.uuid.size(), 36u);
  EXPECT_FALSE(device.numa_node.has_value());
  EXPECT_EQ((*session)->GetMemoryUse()->device_bytes, 0u);  // an arena without chunks
}

TEST_F(DeviceChoice, DeviceThatIsNotThere_IsRefusedWithThoseThatAre) {
  options_.device = DeviceIndex{5};
  const absl::Status status = DeviceOfRank(0).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr("there is no device 5; this daemon has device 0 (host, 8.0 MiB), device 1"));
}

TEST_F(DeviceChoice, ArenaThatCannotFit_NamesTheDevice) {
  options_.device = DeviceIndex{0};
  options_.device_memory_bytes = 12 * kMiB;
  const absl::Status status = DeviceOfRank(0).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("device 0: asked for 12.0 MiB"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("use device 1 (16.0 MiB free)"));
}

}  // namespace
}  // namespace geminid
