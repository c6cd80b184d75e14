#include "daemon/core/engine/charges.h"

#include "gtest/gtest.h"

namespace geminid::core {
namespace {

Charge Of(SessionId session) {
  return {.tenant = "uid:1", .account = kHostAccount, .bytes = 5, .session = session};
}

TEST(Charges, PromiseWhoseSessionEnded_IsStillChargedAndNoPromise) {
  Charges charges;
  const ChargeId id = charges.Add(Of(SessionId{3}));
  ASSERT_TRUE(charges.FindPromise(id).ok());
  (*charges.FindPromise(id))->session = kNoSession;
  EXPECT_TRUE(absl::IsAborted(charges.FindPromise(id).status()));
  ASSERT_NE(charges.Find(id), nullptr);
  EXPECT_EQ(charges.Find(id)->bytes, 5u);
}

TEST(Charges, IdThatEnded_NamesNothingAgain) {
  Charges charges;
  const ChargeId first = charges.Add(Of(SessionId{3}));
  charges.End(first);
  const ChargeId second = charges.Add(Of(SessionId{3}));
  EXPECT_NE(first, second);
  EXPECT_EQ(charges.Find(first), nullptr);
  EXPECT_TRUE(absl::IsAborted(charges.FindPromise(first).status()));
  EXPECT_EQ(std::distance(charges.begin(), charges.end()), 1);
}

}  // namespace
}  // namespace geminid::core
