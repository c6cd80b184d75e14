#include "base/exit_status.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

namespace geminid::base {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;

TEST(ExitCodeOf, EveryCode_HasItsPlace) {
  EXPECT_EQ(ExitCodeOf(StatusCode::kOk), 0);
  EXPECT_EQ(ExitCodeOf(StatusCode::kInternal), 1);
  EXPECT_EQ(ExitCodeOf(StatusCode::kUnknown), 1);
  EXPECT_EQ(ExitCodeOf(StatusCode::kInvalidArgument), 2);
  EXPECT_EQ(ExitCodeOf(StatusCode::kOutOfRange), 2);
  EXPECT_EQ(ExitCodeOf(StatusCode::kUnavailable), 3);
  EXPECT_EQ(ExitCodeOf(StatusCode::kNotFound), 4);
  EXPECT_EQ(ExitCodeOf(StatusCode::kPermissionDenied), 5);
  EXPECT_EQ(ExitCodeOf(StatusCode::kUnauthenticated), 5);
  EXPECT_EQ(ExitCodeOf(StatusCode::kDeadlineExceeded), 6);
  EXPECT_EQ(ExitCodeOf(StatusCode::kResourceExhausted), 7);
  EXPECT_EQ(ExitCodeOf(StatusCode::kAborted), 9);
  EXPECT_EQ(ExitCodeOf(StatusCode::kFailedPrecondition), 10);
}

TEST(DaemonExitCodeOf, EveryCode_HasItsPlace) {
  EXPECT_EQ(DaemonExitCodeOf(StatusCode::kOk), 0);
  EXPECT_EQ(DaemonExitCodeOf(StatusCode::kUnavailable), 69);
  EXPECT_EQ(DaemonExitCodeOf(StatusCode::kInternal), 70);
  EXPECT_EQ(DaemonExitCodeOf(StatusCode::kResourceExhausted), 71);
  EXPECT_EQ(DaemonExitCodeOf(StatusCode::kPermissionDenied), 77);
  EXPECT_EQ(DaemonExitCodeOf(StatusCode::kInvalidArgument), 78);
}

TEST(FinishOutput, WhatCannotBeWritten_IsAnError) {
  std::ostringstream good;
  good << "text";
  EXPECT_TRUE(FinishOutput(good).ok());
  std::ofstream full("/dev/full");
  full << "text";
  const absl::Status status = FinishOutput(full);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("standard output"));
}

TEST(FinishOutput, LossBeforeTheEnd_IsAnErrorToo) {
  std::ofstream full("/dev/full");
  full << "text" << std::flush;
  EXPECT_FALSE(FinishOutput(full).ok());
}

// As in `geminictl ls | head -1`.
TEST(FinishOutput, WithoutAReader_IsNoError) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const auto before = ::signal(SIGPIPE, SIG_IGN);
  {
    std::ofstream out("/dev/fd/" + std::to_string(ends[1]));
    close(ends[0]);
    out << "text";
    EXPECT_TRUE(FinishOutput(out).ok());
  }  // tries again to write
  close(ends[1]);
  ::signal(SIGPIPE, before);
}

}  // namespace
}  // namespace geminid::base
