#include "daemon/config/device_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace geminid::config {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Error(const std::string& text) {
  return std::string(ParseDeviceList(text).status().message());
}

TEST(DeviceList, GoodText_IsParsedAndWrittenTheSame) {
  const auto devices = ParseDeviceList("host:1=8GiB@3,host:0=1.5GiB");
  ASSERT_TRUE(devices.ok()) << devices.status();
  ASSERT_EQ(devices->size(), 2u);
  EXPECT_EQ((*devices)[0].index(), 1u);
  EXPECT_EQ((*devices)[0].kind(), "host");
  EXPECT_EQ((*devices)[0].memory(), "8GiB");
  EXPECT_EQ((*devices)[0].numa_node(), 3u);
  EXPECT_FALSE((*devices)[1].has_numa_node());
  EXPECT_EQ(ToText((*devices)[0]), "host:1=8GiB@3");
  EXPECT_EQ(ToText((*devices)[1]), "host:0=1.5GiB");
}

TEST(DeviceList, Mistakes_AreSaidWithTheirPlace) {
  EXPECT_THAT(Error(""), StartsWith("character 1: '' is not host:INDEX=MEMORY"));
  EXPECT_THAT(Error("host:0=8GiB,"), StartsWith("character 13: '' is not host:INDEX=MEMORY"));
  EXPECT_THAT(Error("host:0"), StartsWith("character 1: 'host:0' is not host:INDEX=MEMORY"));
  EXPECT_THAT(Error("host"), StartsWith("character 1: 'host' is not host:INDEX=MEMORY"));
  EXPECT_THAT(Error("host=0:8GiB"), StartsWith("character 1: 'host=0:8GiB' is not"));
  EXPECT_THAT(
      Error("host:0=8GiB,hots:1=8GiB"),
      StartsWith("character 13: 'hots' is not a kind of device; the kinds are host and cuda; did "
                 "you mean 'host'?"));
  for (const char* index : {"", "-1", "+1", "64", "0x0", " 0"}) {
    EXPECT_THAT(
        Error(std::string("host:") + index + "=1GiB"),
        StartsWith("character 6: '" + std::string(index) + "' is not an index from 0 to 63"));
  }
  EXPECT_THAT(Error("host:0=8GB/s"), StartsWith("character 8: '8GB/s' is not a size"));
  EXPECT_THAT(Error("host:0=32"), StartsWith("character 8: '32' has no unit"));
  EXPECT_THAT(Error("host:0=8GiB@x"), StartsWith("character 13: 'x' is not a NUMA node"));
  EXPECT_THAT(Error("host:0=8GiB@1@2"), HasSubstr("'1@2' is not a NUMA node"));
  EXPECT_THAT(Error("host:0=8GiB, host:1=8GiB"), StartsWith("character 13: ' host' is not a kind"));
}

TEST(DeviceList, Gpus_MayHaveASizeAndAName) {
  const std::string text =
      "cuda:0,cuda:1=64GiB,cuda:2@GPU-f81d4fae-7dec-11d0-a765-00a0c91e6bf6,"
      "cuda:3=1.5GiB@0000:3b:00.0,cuda";
  const auto devices = ParseDeviceList(text);
  ASSERT_TRUE(devices.ok()) << devices.status();
  ASSERT_EQ(devices->size(), 5u);
  EXPECT_EQ((*devices)[0].kind(), "cuda");
  EXPECT_EQ((*devices)[0].memory(), "");
  EXPECT_EQ((*devices)[1].memory(), "64GiB");
  EXPECT_EQ((*devices)[2].gpu(), "GPU-f81d4fae-7dec-11d0-a765-00a0c91e6bf6");
  EXPECT_EQ((*devices)[3].gpu(), "0000:3b:00.0");
  EXPECT_EQ((*devices)[3].memory(), "1.5GiB");
  EXPECT_TRUE((*devices)[4].all_gpus());
  std::string again;
  for (const v1::Device& device : *devices) again += (again.empty() ? "" : ",") + ToText(device);
  EXPECT_EQ(again, text);
}

TEST(DeviceList, MistakesWithGpus_AreSaidWithTheirPlace) {
  EXPECT_THAT(Error("cuda:0=x"), StartsWith("character 8: 'x' is not a size"));
  EXPECT_THAT(Error("cuda:0=64"), StartsWith("character 8: '64' has no unit"));
  EXPECT_THAT(Error("cuda:0@1"), StartsWith("character 8: '1' is neither the UUID of a GPU nor"));
  EXPECT_THAT(Error("cuda:0@"), StartsWith("character 8: '' is neither the UUID of a GPU nor"));
  EXPECT_THAT(Error("cuda:0=1GiB@3b:00.0"), HasSubstr("'3b:00.0' is neither"));
  EXPECT_THAT(Error("cuda:x"), StartsWith("character 6: 'x' is not an index"));
  EXPECT_THAT(Error("cuda=8GiB"), StartsWith("character 1: 'cuda=8GiB' is not host:INDEX"));
  EXPECT_THAT(Error("gpu:0=8GiB"), StartsWith("character 1: 'gpu' is not a kind of device"));
}

TEST(DeviceList, GpuNames_AreUuidsAndPciAddresses) {
  for (const char* name :
       {"0000:3b:00.0", "00000000:3B:00.0", "GPU-f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
        "MIG-f81d4fae-7dec-11d0-a765-00a0c91e6bf6"}) {
    EXPECT_TRUE(IsGpuName(name)) << name;
  }
  for (const char* name : {"", "0", "3b:00.0", "0000:3b:00.", "0000:3g:00.0", "../0000:3b:00.0",
                           "XPU-f81d4fae-7dec-11d0-a765-00a0c91e6bf6"}) {
    EXPECT_FALSE(IsGpuName(name)) << name;
  }
}

}  // namespace
}  // namespace geminid::config
