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
  EXPECT_THAT(Error(""), StartsWith("character 1: '' is not KIND:INDEX=MEMORY"));
  EXPECT_THAT(Error("host:0=8GiB,"), StartsWith("character 13: '' is not KIND:INDEX=MEMORY"));
  EXPECT_THAT(Error("host=0:8GiB"), StartsWith("character 1: 'host=0:8GiB' is not"));
  EXPECT_THAT(Error("host:0=8GiB,hots:1=8GiB"),
              StartsWith("character 13: 'hots' is no kind of device; there is host; did you mean "
                         "'host'?"));
  EXPECT_THAT(Error("cuda:0=8GiB"), HasSubstr("no cuda devices"));
  for (const char* index : {"", "-1", "+1", "64", "0x0", " 0"}) {
    EXPECT_THAT(
        Error(std::string("host:") + index + "=1GiB"),
        StartsWith("character 6: '" + std::string(index) + "' is not an index from 0 to 63"));
  }
  EXPECT_THAT(Error("host:0=8GB/s"), StartsWith("character 8: '8GB/s' is not a size"));
  EXPECT_THAT(Error("host:0=8GiB@x"), StartsWith("character 13: 'x' is not a NUMA node"));
  EXPECT_THAT(Error("host:0=8GiB@1@2"), HasSubstr("'1@2' is not a NUMA node"));
  EXPECT_THAT(Error("host:0=8GiB, host:1=8GiB"), StartsWith("character 13: ' host' is no kind"));
}

}  // namespace
}  // namespace geminid::config
