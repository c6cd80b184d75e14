#include "daemon/service/watch/pages.h"

#include <gtest/gtest.h>

namespace geminid::service {
namespace {

TEST(Pages, Token_RoundTrips) {
  for (const PageStart start : {PageStart{0, 0}, PageStart{7, 65536}, PageStart{~uint64_t{0}, 1}}) {
    const absl::StatusOr<PageStart> again = FromToken(ToToken(start));
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(again->session, start.session);
    EXPECT_EQ(again->item, start.item);
  }
  EXPECT_EQ(FromToken("")->session, 0u);
}

TEST(Pages, OtherTexts_AreRefused) {
  for (const char* bad : {"x", "1", "1/", "/1", "-1/0", "1/-1", "1/2/3", "01/2", " 1/2", "1/2 ",
                          "18446744073709551616/0", "0/4294967296"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(FromToken(bad).status())) << bad;
  }
}

}  // namespace
}  // namespace geminid::service
