#include "daemon/config/memory_defaults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

namespace geminid::config {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;

Settings SettingsOf(std::optional<uint64_t> host_bytes, std::vector<uint64_t> devices) {
  Settings settings;
  settings.host_bytes = host_bytes;
  for (const uint64_t bytes : devices) settings.devices.push_back({.bytes = bytes});
  settings.origins = {{"host_memory", "", "built-in"}, {"device_memory", "", "built-in"}};
  return settings;
}

uint64_t DevicesOf(const Settings& settings) {
  uint64_t sum = 0;
  for (const DeviceSetting& device : settings.devices) sum += device.bytes;
  return sum;
}

TEST(FillInMemory, WithoutLimits_AddsUpToWhatIsThere) {
  Settings settings = SettingsOf({}, {});
  ASSERT_TRUE(FillInMemory({.total_bytes = 24 * kGiB}, &settings).ok());
  EXPECT_LE(*settings.host_bytes + DevicesOf(settings), 24 * kGiB * 8 / 10);
  EXPECT_GT(*settings.host_bytes, 11 * kGiB);
  EXPECT_GT(DevicesOf(settings), 7 * kGiB);
}

TEST(FillInMemory, WhatOthersUse_IsNotHandedOut) {
  Settings settings = SettingsOf({}, {});
  ASSERT_TRUE(
      FillInMemory({.total_bytes = 24 * kGiB, .available_bytes = 8 * kGiB}, &settings).ok());
  EXPECT_EQ(*settings.host_bytes + DevicesOf(settings), 8 * kGiB);
}

TEST(LacksHeadroom, SizesThatLeaveTooLittle_AreNamedFromTheFirstByteOn) {
  const MachineMemory machine = {.total_bytes = 100 * kMiB};
  EXPECT_EQ(LacksHeadroom(machine, SettingsOf(20 * kMiB, {16 * kMiB}), 64 * kMiB), "");
  EXPECT_THAT(LacksHeadroom(machine, SettingsOf(20 * kMiB, {16 * kMiB + 1}), 64 * kMiB),
              AllOf(HasSubstr("host_memory (20.0 MiB)"), HasSubstr("64.0 MiB that stay free"),
                    HasSubstr("100 MiB of this machine, or of the cgroup")));
  EXPECT_NE(LacksHeadroom(machine, SettingsOf(40 * kMiB, {}), 64 * kMiB), "");
  EXPECT_NE(LacksHeadroom({.total_bytes = kMiB}, SettingsOf(0, {}), 64 * kMiB), "")
      << "the headroom alone is too much";
  EXPECT_EQ(LacksHeadroom({}, SettingsOf(kGiB, {kGiB}), 64 * kMiB), "") << "nobody knows the total";
}

// For every mixture of given and missing sizes, the sum is at most the machine's memory.
TEST(FillInMemory, EveryMixture_FitsOrIsRefused) {
  const std::vector<std::optional<uint64_t>> hosts = {{},       0,        kMiB,     kGiB,
                                                      7 * kGiB, 8 * kGiB, 9 * kGiB, ~uint64_t{0}};
  const std::vector<std::vector<uint64_t>> devices = {
      {}, {0}, {kGiB}, {4 * kGiB, 4 * kGiB}, {4 * kGiB, 5 * kGiB}, {~uint64_t{0}, ~uint64_t{0}}};
  int fitting = 0;
  for (const auto& host : hosts) {
    for (const auto& device : devices) {
      for (const uint64_t available : {kMiB / 2, 2 * kGiB, 8 * kGiB}) {
        Settings settings = SettingsOf(host, device);
        const absl::Status status =
            FillInMemory({.total_bytes = 8 * kGiB, .available_bytes = available}, &settings);
        if (!status.ok()) {
          EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
          continue;
        }
        ++fitting;
        EXPECT_LE(*settings.host_bytes, 8 * kGiB);
        EXPECT_LE(DevicesOf(settings), 8 * kGiB - *settings.host_bytes);
        if (host.has_value()) {
          EXPECT_EQ(settings.host_bytes, host);
        }
        EXPECT_FALSE(settings.devices.empty());
      }
    }
  }
  EXPECT_GT(fitting, 20);
}

TEST(FillInMemory, MoreThanThereIs_IsRefusedWithNumbers) {
  Settings settings = SettingsOf(uint64_t{100} << 40, {});
  const absl::Status nothing_left = FillInMemory({.total_bytes = 24 * kGiB}, &settings);
  EXPECT_THAT(std::string(nothing_left.message()),
              AllOf(HasSubstr("device_memory is not given"), HasSubstr("100 TiB")));
  settings = SettingsOf(uint64_t{100} << 40, {kGiB});
  const absl::Status too_much = FillInMemory({.total_bytes = 24 * kGiB}, &settings);
  EXPECT_THAT(
      std::string(too_much.message()),
      AllOf(HasSubstr("host_memory (100 TiB)"), HasSubstr("(1.0 GiB)"), HasSubstr("24.0 GiB")));
}

TEST(FillInMemory, TextsAndOrigins_SayWhatIsInForce) {
  Settings settings = SettingsOf(kGiB, {});
  ASSERT_TRUE(FillInMemory({.total_bytes = 10 * kGiB}, &settings).ok());
  EXPECT_EQ(settings.effective.device_memory(), "3072MiB");
  EXPECT_EQ(settings.origins[1].value, "3072MiB");
  EXPECT_EQ(settings.origins[1].origin, kFromMachine);
  EXPECT_EQ(settings.origins[0].origin, "built-in");
}

}  // namespace
}  // namespace geminid::config
