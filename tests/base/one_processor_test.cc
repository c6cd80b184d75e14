#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/processors.h"

namespace geminid::base {
namespace {

TEST(OneProcessor, ThatCtestHasChosen_IsTheOnlyOneThatTheTestMayUse) {
  const char* const choice = std::getenv("CTEST_RESOURCE_GROUP_0_PROCESSORS");
  if (choice == nullptr) GTEST_SKIP() << "ctest has chosen none: tools/test lets it choose";
  const std::vector<int> allowed = AllowedProcessors();
  ASSERT_EQ(allowed.size(), 1) << choice;
  EXPECT_THAT(choice, testing::StartsWith("id:" + std::to_string(allowed[0]) + ","));
}

}  // namespace
}  // namespace geminid::base
