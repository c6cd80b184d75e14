#include "base/bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace geminid::base {
namespace {

using ::testing::HasSubstr;

TEST(ParseBytes, EveryUnit_IsExact) {
  const std::pair<const char*, uint64_t> cases[] = {
      {"0", 0},
      {"17", 17},
      {"17B", 17},
      {"1KiB", 1024},
      {"3MiB", 3 * 1048576},
      {"2GiB", uint64_t{2} << 30},
      {"1TiB", uint64_t{1} << 40},
      {"1kB", 1000},
      {"24MB", 24000000},
      {"1GB", 1000000000},
      {"1TB", 1000000000000},
      {"1.5GiB", (uint64_t{3} << 30) / 2},
      {"0.5kB", 500},
      {"18446744073709551615", ~uint64_t{0}},
  };
  for (const auto& [text, bytes] : cases) {
    absl::StatusOr<uint64_t> parsed = ParseBytes(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, bytes) << text;
  }
}

TEST(ParseBytes, WhatIsNotASize_IsRefusedWithItsText) {
  for (const char* text :
       {"", "-1", "+1", "1XB", "1 GiB", "GiB", "1gib", "1.5", "0.1B", "1.KiB", ".5KiB", "1e9", "1G",
        "18446744073709551616", "99999999TiB", "1GiBx", "1.0000000000001TiB"}) {
    absl::StatusOr<uint64_t> parsed = ParseBytes(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(text));
  }
}

TEST(ParseBytesPerSecond, SuffixIsRequired) {
  EXPECT_EQ(*ParseBytesPerSecond("10GB/s"), 10000000000u);
  EXPECT_FALSE(ParseBytesPerSecond("10GB").ok());
  EXPECT_FALSE(ParseBytesPerSecond("/s").ok());
}

TEST(FormatBytes, SmallAndLarge_HaveBinaryUnits) {
  EXPECT_EQ(FormatBytes(512), "512 B");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes(uint64_t{614} << 20), "614 MiB");
}

}  // namespace
}  // namespace geminid::base
