#include "daemon/os/limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace geminid::os {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kGiB = uint64_t{1} << 30;

TEST(CheckLimits, WithoutLimits_AnythingGoes) {
  EXPECT_TRUE(CheckLimits({}, kGiB, ~uint64_t{0} - 1).ok());
}

TEST(CheckLimits, FilesThatAreTooSmall_AreRefusedWithNumbers) {
  const Limits limits = {.file_bytes = 10240};
  const absl::Status status = CheckLimits(limits, kGiB, kGiB);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("10.0 KiB"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("1.0 GiB"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("ulimit -f"));
  EXPECT_TRUE(CheckLimits(limits, 10240, 10240).ok());
}

TEST(CheckLimits, AddressSpaceThatIsTooSmall_IsRefusedWithNumbers) {
  const Limits limits = {.address_space_bytes = 4 * kGiB};
  EXPECT_TRUE(CheckLimits(limits, kGiB, 2 * kGiB).ok());
  const absl::Status status = CheckLimits(limits, kGiB, 2 * kGiB + 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("ulimit -v"));
}

}  // namespace
}  // namespace geminid::os
