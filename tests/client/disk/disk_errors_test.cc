#include "client/disk/disk_errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <string>

namespace geminid::disk {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kPath[] = "/disks/a/geminid-x.state";

absl::Status Error(int error, const std::string& call) {
  return DiskError(error, {.call = call, .path = kPath, .offset = 4096, .bytes = 1 << 20});
}

TEST(DiskError, EveryError_NamesFileByteAndCall) {
  for (const int error : {ENOSPC, EDQUOT, EFBIG, EIO, EINVAL}) {
    EXPECT_THAT(std::string(Error(error, "write").message()),
                AllOf(HasSubstr(kPath), HasSubstr("write"), HasSubstr("at byte 4096")));
  }
}

TEST(DiskError, FullDiskQuotaAndLargeFile_AreExhaustedAndSayWhatToDo) {
  EXPECT_TRUE(absl::IsResourceExhausted(Error(ENOSPC, "write")));
  EXPECT_THAT(std::string(Error(ENOSPC, "write").message()), HasSubstr("free space"));
  EXPECT_TRUE(absl::IsResourceExhausted(Error(EDQUOT, "write")));
  EXPECT_THAT(std::string(Error(EDQUOT, "write").message()), HasSubstr("quota"));
  EXPECT_TRUE(absl::IsResourceExhausted(Error(EFBIG, "reserve")));
  EXPECT_THAT(std::string(Error(EFBIG, "reserve").message()), HasSubstr("ulimit -f"));
}

// Data that cannot be read is lost. Data that cannot be written still exists at its source.
TEST(DiskError, BadSector_IsDataLossForReadsAlone) {
  EXPECT_TRUE(absl::IsDataLoss(Error(EIO, "read")));
  EXPECT_TRUE(absl::IsInternal(Error(EIO, "write")));
  EXPECT_TRUE(absl::IsInternal(Error(EIO, "sync")));
}

TEST(TruncatedError, EndOfFile_IsDataLoss) {
  const absl::Status status = TruncatedError({.call = "read", .path = kPath, .offset = 8192});
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(kPath), HasSubstr("truncated")));
}

}  // namespace
}  // namespace geminid::disk
