// How ranks lie on the hosts of a list.
#include "training/launch/host_spread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace geminid::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(HostSpread, OfAList_FillsHostAfterHost) {
  const HostSpread spread({2, 3, 1});
  EXPECT_THAT(*spread.Of(1), ElementsAre(1));
  EXPECT_THAT(*spread.Of(2), ElementsAre(2));
  EXPECT_THAT(*spread.Of(4), ElementsAre(2, 2));
  EXPECT_THAT(*spread.Of(6), ElementsAre(2, 3, 1));
  EXPECT_THAT(HostByRank(*spread.Of(4)), ElementsAre(0, 0, 1, 1));
}

TEST(HostSpread, OfMoreRanksThanSlots_IsRefusedWithBoth) {
  const auto ranks = HostSpread({2, 2}).Of(5);
  EXPECT_TRUE(absl::IsInvalidArgument(ranks.status()));
  EXPECT_THAT(std::string(ranks.status().message()),
              HasSubstr("--hosts has 4 slots, but the run needs 5 ranks"));
}

TEST(HostSpread, WithoutAList_IsOneHostOfAnyNumber) {
  EXPECT_FALSE(HostSpread().has_list());
  EXPECT_THAT(*HostSpread().Of(1000), ElementsAre(1000));
}

absl::StatusOr<HostSpread> From(const char* text) {
  return HostSpread::From([text](const char*) { return text; });
}

TEST(HostSpread, AsItsVariable_IsReadBack) {
  EXPECT_THAT(*From(HostSpread({2, 3}).Text().c_str())->Of(5), ElementsAre(2, 3));
  EXPECT_FALSE(From(nullptr)->has_list());
}

TEST(HostSpread, OfWhatIsNoSlots_IsRefused) {
  for (const char* const text : {"", "2,", "0", "-1", "2;3", "2000", "a"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(From(text).status())) << text;
  }
}

}  // namespace
}  // namespace geminid::trainer
