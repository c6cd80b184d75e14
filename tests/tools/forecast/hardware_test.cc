#include "tools/forecast/hardware.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace geminid::forecast {
namespace {

TEST(HardwareTable, EveryRow_IsCompleteAndPossible) {
  std::set<std::string> names;
  for (const Hardware& row : HardwareTable()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_GT(row.device_bytes, row.reserved_bytes) << row.name;
    EXPECT_GT(row.achieved_share, 0) << row.name;
    EXPECT_LT(row.achieved_share, 1) << row.name;
    // Device memory is faster than what crosses to other devices, that than the host link.
    EXPECT_GT(row.device_memory_bytes_per_second, row.peer_bytes_per_second) << row.name;
    EXPECT_GE(row.peer_bytes_per_second, row.up_bytes_per_second) << row.name;
    EXPECT_GE(row.host_memory_bytes_per_second, row.up_bytes_per_second) << row.name;
    EXPECT_GT(row.network_bytes_per_second, 0) << row.name;
  }
  EXPECT_EQ(names, (std::set<std::string>{"v100-32gb", "rtx-2060-6gb", "rtx-3090-24gb", "a100-40gb",
                                          "a100-80gb", "h100-80gb", "h200", "gh200"}));
}

TEST(HardwareTable, UnknownName_IsNotFoundAndListsTheNames) {
  const absl::Status status = FindHardware("tpu").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("gh200"));
}

}  // namespace
}  // namespace geminid::forecast
