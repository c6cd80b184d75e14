#include "daemon/config/device_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/shm/limits.h"

namespace geminid::config {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kGiB = uint64_t{1} << 30;

v1::Config ConfigOf(const std::string& list) {
  v1::Config config;
  const auto devices = ParseDeviceList(list);
  EXPECT_TRUE(devices.ok()) << devices.status();
  for (const v1::Device& device : *devices) *config.add_device() = device;
  return config;
}

// The error of a single device after `change`.
template <typename Change>
std::string Wrong(const std::string& list, Change change) {
  v1::Config config = ConfigOf(list);
  change(config.mutable_device(0));
  std::vector<DeviceSetting> settings;
  std::string text;
  for (const DeviceProblem& problem : ReadDevices(config, &settings)) {
    text += problem.within + ": " + problem.text + "\n";
  }
  return text;
}

TEST(DeviceSettings, Devices_AreSortedByIndexAndAllGpusComeLast) {
  std::vector<DeviceSetting> settings;
  EXPECT_THAT(ReadDevices(ConfigOf("cuda,cuda:1=8GiB@0000:3b:00.0,host:0=2GiB@1"), &settings),
              IsEmpty());
  ASSERT_EQ(settings.size(), 3u);
  EXPECT_EQ(settings[0].kind, shm::DeviceKind::kHost);
  EXPECT_EQ(settings[0].bytes, 2 * kGiB);
  EXPECT_EQ(settings[0].numa_node, 1);
  EXPECT_EQ(settings[1].kind, shm::DeviceKind::kCuda);
  EXPECT_EQ(settings[1].bytes, 8 * kGiB);
  EXPECT_EQ(settings[1].gpu, "0000:3b:00.0");
  EXPECT_TRUE(settings[2].all_gpus);
}

TEST(DeviceSettings, GapsAndTwins_AreRefused) {
  std::vector<DeviceSetting> settings;
  const auto gap = ReadDevices(ConfigOf("host:0=1GiB,cuda:2"), &settings);
  ASSERT_EQ(gap.size(), 1u);
  EXPECT_EQ(gap[0].position, 1);
  EXPECT_THAT(gap[0].text, HasSubstr("leaves a gap"));
  const auto twins = ReadDevices(ConfigOf("host:0=1GiB,cuda:0,cuda:1"), &settings);
  ASSERT_EQ(twins.size(), 1u);
  EXPECT_THAT(twins[0].text, HasSubstr("given twice"));
  EXPECT_EQ(ReadDevices(ConfigOf("cuda,cuda"), &settings).size(), 1u);
}

TEST(DeviceSettings, WhatAFileSaysOfGpus_IsChecked) {
  EXPECT_EQ(Wrong("cuda:0", [](v1::Device*) {}), "");
  EXPECT_THAT(Wrong("cuda:0", [](v1::Device* gpu) { gpu->set_numa_node(1); }),
              HasSubstr("numa_node: the NUMA node of a GPU is fixed"));
  EXPECT_THAT(Wrong("cuda:0", [](v1::Device* gpu) { gpu->set_gpu("0"); }), HasSubstr("gpu: '0'"));
  EXPECT_THAT(Wrong("host:0=1GiB", [](v1::Device* host) { host->set_gpu("0000:3b:00.0"); }),
              HasSubstr("the kind is not cuda"));
  EXPECT_THAT(Wrong("cuda:0", [](v1::Device* gpu) { gpu->set_memory("0B"); }), HasSubstr("memory"));
  EXPECT_THAT(Wrong("host:0=1GiB", [](v1::Device* host) { host->set_memory("32"); }),
              HasSubstr("memory: '32' has no unit"));
  EXPECT_THAT(Wrong("host:0=1GiB", [](v1::Device* host) { host->set_memory(""); }),
              HasSubstr("memory"));
  EXPECT_THAT(Wrong("cuda:0", [](v1::Device* gpu) { gpu->set_kind("tpu"); }), HasSubstr("kind"));
  EXPECT_THAT(Wrong("cuda", [](v1::Device* all) { all->set_memory("1GiB"); }),
              HasSubstr("all_gpus needs the kind cuda and no other field"));
  EXPECT_THAT(Wrong("cuda", [](v1::Device* all) { all->set_kind("host"); }),
              HasSubstr("all_gpus needs the kind cuda"));
  EXPECT_FALSE(CheckArenaSize(shm::kMaxArenaBytes + 1).ok());
  EXPECT_TRUE(CheckArenaSize(shm::kMaxArenaBytes).ok());
}

}  // namespace
}  // namespace geminid::config
