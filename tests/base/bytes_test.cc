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
      {"17.0B", 17},
      {"0.0KiB", 0},
      {"18446744073709551615", ~uint64_t{0}},
  };
  for (const auto& [text, bytes] : cases) {
    absl::StatusOr<uint64_t> parsed = ParseBytes(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, bytes) << text;
  }
}

TEST(ParseBytes, FractionOfAByte_IsRoundedDown) {
  const std::pair<const char*, uint64_t> cases[] = {
      {"8.6MiB", 9017753},       // 9017753.6
      {"0.1KiB", 102},           // 102.4
      {"1.999KiB", 2046},        // 2046.976
      {"1.0001kB", 1000},        // 1000.1
      {"0.000000000001TiB", 1},  // 1.0995...
      {"12.4GiB", 13314398617},  // 13314398617.6
  };
  for (const auto& [text, bytes] : cases) {
    absl::StatusOr<uint64_t> parsed = ParseBytes(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, bytes) << text;
  }
}

TEST(ParseBytes, FormattedSize_IsTakenWithoutItsSpace) {
  for (uint64_t bytes = 1; bytes < (uint64_t{1} << 50); bytes = bytes * 3 + 1) {
    std::string text = FormatBytes(bytes);
    text.erase(text.find(' '), 1);
    EXPECT_TRUE(ParseBytes(text).ok()) << text;
  }
}

TEST(ParseBytes, WhatIsNotASize_IsRefusedWithItsText) {
  for (const char* text :
       {"", "-1", "+1", "1XB", "1 GiB", "GiB", "1gib", "1.5", "0.1B", "1.KiB", ".5KiB", "1e9", "1G",
        "18446744073709551616", "99999999TiB", "1GiBx", "1.0000000000001TiB", "0.0001KiB"}) {
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
