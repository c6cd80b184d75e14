#include "base/socket_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>

#include "tests/base/temporary_folder.h"

namespace geminid::base {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uid_t kStranger = 64001;

std::string WhyOf(const std::string& path) {
  return DescribeOtherOwners(path, std::array{::geteuid()});
}

TEST(SocketFolder, ThatOnlyItsOwnerMayWrite_IsNobodyElses) {
  const TemporaryFolder folder;
  EXPECT_THAT(WhyOf(folder / "s"), IsEmpty());
  ASSERT_EQ(::chmod(folder.path().c_str(), 0755), 0);
  EXPECT_THAT(WhyOf(folder / "s"), IsEmpty());
}

TEST(SocketFolder, WhereOthersMayCreateFiles_IsNamedWithItsMode) {
  const TemporaryFolder folder;
  for (const mode_t mode : {01777, 0777, 0775}) {
    ASSERT_EQ(::chmod(folder.path().c_str(), mode), 0);
    EXPECT_THAT(WhyOf(folder / "s"), AllOf(HasSubstr(folder.path()), HasSubstr("others may")));
  }
}

// A user who may rename a folder may put another one in its place.
TEST(SocketFolder, BelowOneWhereOthersMayRename_IsTheirs) {
  const TemporaryFolder folder;
  ASSERT_TRUE(std::filesystem::create_directory(folder / "own"));
  ASSERT_EQ(::chmod(folder.path().c_str(), 0777), 0);
  EXPECT_THAT(WhyOf(folder / "own/s"), HasSubstr("mode 0777"));
  ASSERT_EQ(::chmod(folder.path().c_str(), 01777), 0);
  EXPECT_THAT(WhyOf(folder / "own/s"), IsEmpty());
}

TEST(SocketFolder, OfAnotherUser_IsThatUsers) {
  if (::getuid() != 0) GTEST_SKIP() << "needs root, to give a folder away";
  const TemporaryFolder folder;
  ASSERT_EQ(::chown(folder.path().c_str(), kStranger, kStranger), 0);
  EXPECT_THAT(WhyOf(folder / "s"), HasSubstr("is user 64001's"));
  EXPECT_THAT(DescribeOtherOwners(folder / "s", std::array{kStranger}), IsEmpty());
}

TEST(SocketFolder, ThatIsNotThereYet_IsJudgedByThoseAbove) {
  const TemporaryFolder folder;
  EXPECT_THAT(WhyOf(folder / "new/s"), IsEmpty());
  ASSERT_EQ(::chmod(folder.path().c_str(), 0777), 0);
  EXPECT_THAT(WhyOf(folder / "new/s"), HasSubstr("mode 0777"));
}

}  // namespace
}  // namespace geminid::base
