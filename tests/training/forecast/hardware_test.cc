#include "training/forecast/hardware.h"

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
    // Device memory is faster than the links between devices, which are faster than the host link.
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

TEST(HardwareOfDriverName, KnownChips_AreFoundAndOthersAreNot) {
  const auto row = [](const char* name) {
    const Hardware* const hardware = HardwareOfDriverName(name);
    return hardware == nullptr ? std::string("none") : hardware->name;
  };
  EXPECT_EQ(row("NVIDIA H200"), "h200");
  EXPECT_EQ(row("NVIDIA GH200 96GB HBM3"), "gh200");
  EXPECT_EQ(row("NVIDIA H100 80GB HBM3"), "h100-80gb");
  EXPECT_EQ(row("NVIDIA A100-SXM4-80GB"), "a100-80gb");
  EXPECT_EQ(row("NVIDIA A100-SXM4-40GB"), "a100-40gb");
  EXPECT_EQ(row("Tesla V100-SXM2-32GB"), "v100-32gb");
  EXPECT_EQ(row("NVIDIA GeForce RTX 3090"), "rtx-3090-24gb");
  EXPECT_EQ(row("NVIDIA GeForce RTX 3090 Ti"), "none");
  EXPECT_EQ(row("NVIDIA GeForce RTX 2060 SUPER"), "none");
  EXPECT_EQ(row("NVIDIA A10"), "none");
  EXPECT_EQ(row(""), "none");
}

TEST(Constants, OfATablesRow_HaveSourcesAndOfAFlagAreGiven) {
  for (const Hardware& hardware : HardwareTable()) {
    for (const Constant& constant : ConstantsOf(hardware)) {
      EXPECT_GT(constant.value, 0) << hardware.name << ": " << constant.name;
      EXPECT_NE(constant.source, "") << hardware.name << ": " << constant.name;
      EXPECT_NE(constant.source, "given") << hardware.name << ": " << constant.name;
    }
  }
  Hardware changed = *FindHardware("h200");
  changed.network_bytes_per_second = 1e9;
  for (const Constant& constant : ConstantsOf(changed)) {
    EXPECT_EQ(constant.source == "given", constant.name == "network of a node") << constant.name;
  }
}

}  // namespace
}  // namespace geminid::forecast
