#include "daemon/os/subordinate_ids.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/base/temporary_folder.h"

namespace geminid::os {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::optional<uint64_t> AliceIs1000(const std::string& name) {
  return name == "alice" ? std::optional<uint64_t>(1000) : std::nullopt;
}

TEST(IdRanges, OfNamesAndNumbers_AreTheirUsers) {
  EXPECT_THAT(ParseIdRanges("alice:100000:65536\n1001:165536:10\nbob:200000:1\n", AliceIs1000),
              ElementsAre(IdRange{100000, 65536, "1000"}, IdRange{165536, 10, "1001"},
                          IdRange{200000, 1, "bob"}));
}

TEST(IdRanges, LinesThatAreNone_ArePassedOver) {
  EXPECT_THAT(ParseIdRanges("# a comment\n\nalice:1\nalice:x:1\n:1:1\nalice:1:-1\na:1:1:1",
                            AliceIs1000),
              IsEmpty());
}

TEST(SubordinateIds, InARange_AreItsOwnersFromTheFirstToTheLast) {
  const base::TemporaryFolder folder;
  SubordinateIds ids(folder.Write("subuid", "alice:100000:65536\n"),
                     folder.Write("subgid", "alice:300000:2\n"),
                     folder.Write("passwd", "alice:x:1000:1000::/:/bin/sh\n"));
  EXPECT_EQ(ids.OwnerOfUser(99999), std::nullopt);
  EXPECT_EQ(ids.OwnerOfUser(100000), "1000");
  EXPECT_EQ(ids.OwnerOfUser(165535), "1000");
  EXPECT_EQ(ids.OwnerOfUser(165536), std::nullopt);
  EXPECT_EQ(ids.OwnerOfGroup(300001), "1000");
  EXPECT_EQ(ids.OwnerOfGroup(300002), std::nullopt);
}

// A range at the end of all numbers must not overflow.
TEST(SubordinateIds, OfARangeWithoutEnd_AreItsOwners) {
  const base::TemporaryFolder folder;
  SubordinateIds ids(folder.Write("subuid", "7:4294967290:18446744073709551615\n"), "", "");
  EXPECT_EQ(ids.OwnerOfUser(4294967295), "7");
  EXPECT_EQ(ids.OwnerOfUser(1), std::nullopt);
}

TEST(SubordinateIds, WithoutTheFiles_AreNobodys) {
  const base::TemporaryFolder folder;
  SubordinateIds ids(folder / "a", folder / "b", folder / "c");
  EXPECT_EQ(ids.OwnerOfUser(100000), std::nullopt);
}

}  // namespace
}  // namespace geminid::os
