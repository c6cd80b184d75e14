#include "base/memory_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

namespace geminid::base {
namespace {

using testing::HasSubstr;

TEST(DescribeMemoryLimits, InALimitedProcess_NamesEachLimitAndHowToLiftIt) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small = {uint64_t{10} << 10, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THAT(DescribeMemoryLimits(), HasSubstr("is limited to 10.0 KiB: raise it, or lift it "
                                                "with ulimit -f unlimited"));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  if (before.rlim_cur == RLIM_INFINITY) {
    EXPECT_THAT(DescribeMemoryLimits(), testing::Not(HasSubstr("-f unlimited")));
  }
}

}  // namespace
}  // namespace geminid::base
