#include "base/flag_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/bytes.h"

namespace geminid::base {
namespace {

TEST(ParseCount, OfWholeNumbersInRange_TakesThemAndNothingElse) {
  EXPECT_EQ(*ParseCount("--n", "7", 1, 7), 7u);
  for (const char* bad :
       {"", "0", "8", "-1", "+1", " 1", "1 ", "1.0", "0x1", "99999999999999999999"}) {
    const absl::Status status = ParseCount("--n", bad, 1, 7).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_EQ(status.message(),
              WithValue("--n", bad) + "it must be a whole number from 1 to 7");
  }
}

TEST(ParseReal, OfNoNumber_IsRefused) {
  EXPECT_EQ(*ParseReal("--x", "0.5", 0, 1), 0.5);
  for (const char* bad : {"", "2", "-1", "nan", "inf", "1x"}) {
    EXPECT_FALSE(ParseReal("--x", bad, 0, 1).ok()) << bad;
  }
}

TEST(ParseWord, OfAnotherWord_NamesThoseAllowed) {
  EXPECT_TRUE(*ParseSwitch("--s", "on"));
  EXPECT_FALSE(*ParseSwitch("--s", "off"));
  EXPECT_EQ(ParseSwitch("--s", "yes").status().message(),
            "--s yes: it must be one of: on, off");
}

TEST(WithValue, OfAFlag_IsAsItWasTyped) {
  EXPECT_EQ(WithValue("--n", "-1"), "--n -1: ");
  EXPECT_EQ(WithValue("--n", ""), "--n '': ");
  EXPECT_EQ(WithValue("--job", "a b"), "--job 'a b': ");
  EXPECT_EQ(WithValue("GEMINID_X", "y"), "GEMINID_X is 'y'; ");
}

TEST(ParseMemory, OfASmallNumberWithoutAUnit_AsksForIt) {
  EXPECT_EQ(ParseMemory("--device-memory", "64").status().message(),
            "--device-memory 64: that is 64 bytes; write the unit, as in 64MiB or 64GiB, or 64B if "
            "bytes are meant");
  EXPECT_FALSE(ParseMemory("--device-memory", "1048575").ok());
  EXPECT_EQ(*ParseMemory("--device-memory", "1048576"), 1048576u);
  EXPECT_EQ(*ParseMemory("--device-memory", "64B"), 64u);
  EXPECT_EQ(*ParseMemory("--device-memory", "64KiB"), 65536u);
  EXPECT_EQ(*ParseMemory("--host-memory", "0"), 0u);
}

TEST(ParseMemory, OfNoSize_BeginsWithTheFlagAndItsValue) {
  EXPECT_THAT(std::string(ParseMemory("--device-memory", "64k").status().message()),
              testing::StartsWith("--device-memory 64k: not a size: the unit is unknown; write "));
  EXPECT_THAT(std::string(ParseBandwidth("--copy-bandwidth", "64").status().message()),
              testing::StartsWith("--copy-bandwidth 64: not a bandwidth; write a size per second"));
  EXPECT_EQ(*ParseBandwidth("--copy-bandwidth", "64B/s"), 64u);
}

// The number that people are told to ask for suffices to the byte, and can be typed.
TEST(ExactBytes, AnyNumber_ComesBack) {
  EXPECT_EQ(ExactBytes(0), "0B");
  EXPECT_EQ(ExactBytes((uint64_t{4} << 20) + (uint64_t{64} << 10)), "4.0625MiB");
  EXPECT_EQ(ExactBytes(uint64_t{25} << 28), "6.25GiB");
  EXPECT_EQ(ExactBytes(4100), "4100B");
  for (uint64_t bytes = 1; bytes < uint64_t{1} << 46; bytes = bytes * 5 / 3 + 1) {
    for (const uint64_t unit : {uint64_t{1}, uint64_t{64}, uint64_t{4096}}) {
      EXPECT_EQ(*ParseBytes(ExactBytes(bytes / unit * unit)), bytes / unit * unit);
    }
  }
}

}  // namespace
}  // namespace geminid::base
