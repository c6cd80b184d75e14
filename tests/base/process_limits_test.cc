#include "base/process_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "base/system_error.h"
#include "tests/base/few_descriptors.h"

namespace geminid::base {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ProbeThreads, WhereThereAreEnough_IsWell) { EXPECT_TRUE(ProbeThreads(20).ok()); }

// A test cannot reach the kernel's own limit of root's threads; so it limits address space.
TEST(ProbeThreads, WhereThereAreFewer_SaysHowMany) {
  const pid_t pid = fork();
  if (pid == 0) {
    const rlimit little = {size_t{64} << 20, size_t{64} << 20};  // a stack has 8 MiB
    setrlimit(RLIMIT_AS, &little);
    const absl::Status status = ProbeThreads(100);
    const bool right = absl::IsResourceExhausted(status) &&
                       status.message().find("100 more threads") != absl::string_view::npos &&
                       status.message().find("ulimit -u") != absl::string_view::npos;
    _exit(right ? 0 : 1);
  }
  int status = -1;
  waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(RaiseDescriptorLimit, BringsTheSoftLimitToTheHardOne) {
  RaiseDescriptorLimit();
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(limit.rlim_cur, limit.rlim_max);
}

TEST(CheckDescriptors, OfMoreThanTheHardLimit_NamesBoth) {
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_TRUE(CheckDescriptors(limit.rlim_max).ok());
  const absl::Status status = CheckDescriptors(limit.rlim_max + 1);
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr(std::to_string(limit.rlim_max) + " desc"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("ulimit -n"));
}

TEST(ProbeDescriptors, AsManyAsAreLeft_IsWellAndLeavesThem) {
  const FewDescriptors few(12);
  EXPECT_TRUE(ProbeDescriptors(12).ok());
  EXPECT_TRUE(ProbeDescriptors(12).ok());
}

TEST(ProbeDescriptors, MoreThanAreLeft_SaysHowManyAndWhatToDo) {
  const FewDescriptors few(12);
  const absl::Status status = ProbeDescriptors(13);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("needs 13 more descriptors"), HasSubstr("12 are left"),
                    HasSubstr("ulimit -n")));
  EXPECT_EQ(WithLimits(status), status);
  EXPECT_TRUE(ProbeDescriptors(12).ok()) << "they are closed again";
}

TEST(WithLimits, OfErrorsOfALimit_NamesItOnce) {
  const absl::Status files = WithLimits(SystemError(EMFILE, "socket", "a socket"));
  EXPECT_TRUE(absl::IsResourceExhausted(files));
  EXPECT_THAT(std::string(files.message()),
              HasSubstr("Too many open files; this process may have"));
  EXPECT_THAT(std::string(files.message()), HasSubstr("ulimit -n"));
  EXPECT_EQ(WithLimits(files), files);
  EXPECT_THAT(std::string(WithLimits(SystemError(EAGAIN, "fork", "a rank")).message()),
              HasSubstr("ulimit -u"));
}

TEST(WithLimits, OfOtherErrors_AddsNothing) {
  const absl::Status other = SystemError(ENOENT, "open", "a file");
  EXPECT_EQ(WithLimits(other), other);
  EXPECT_TRUE(WithLimits(absl::OkStatus()).ok());
}

}  // namespace
}  // namespace geminid::base
