#include "daemon/core/transfers/token_bucket.h"

#include <gtest/gtest.h>

namespace geminid::core {
namespace {

Time At(double seconds) { return Time::FromNanoseconds(static_cast<int64_t>(seconds * 1e9)); }

TEST(TokenBucket, Burst_IsGivenAtOnceAndThenTheRate) {
  TokenBucket bucket({.per_second = 10, .burst = 3}, At(0));
  EXPECT_TRUE(bucket.Take(At(0)) && bucket.Take(At(0)) && bucket.Take(At(0)));
  EXPECT_FALSE(bucket.Take(At(0)));
  EXPECT_FALSE(bucket.Take(At(0.05)));
  EXPECT_TRUE(bucket.Take(At(0.11)));
  EXPECT_FALSE(bucket.Take(At(0.11)));
}

TEST(TokenBucket, LongQuiet_GivesNoMoreThanTheBurst) {
  TokenBucket bucket({.per_second = 10, .burst = 3}, At(0));
  int taken = 0;
  while (bucket.Take(At(1000))) ++taken;
  EXPECT_EQ(taken, 3);
}

TEST(TokenBucket, ClockThatStandsOrGoesBack_GivesNothing) {
  TokenBucket bucket({.per_second = 1e6, .burst = 1}, At(5));
  EXPECT_TRUE(bucket.Take(At(5)));
  EXPECT_FALSE(bucket.Take(At(5)));
  EXPECT_FALSE(bucket.Take(At(4)));
}

TEST(TenantRates, GreedyTenant_TakesNothingFromAnother) {
  TenantRates rates({.per_second = 1, .burst = 2});
  while (rates.Take("uid:1", At(0))) {
  }
  EXPECT_TRUE(rates.Take("uid:2", At(0)));
}

TEST(TenantRates, TenantsThatComeNoMore_AreForgottenAndTheOthersAreNot) {
  TenantRates rates({.per_second = 1, .burst = 1});
  for (int i = 0; i < 10000; ++i) {
    rates.Take("uid:" + std::to_string(i), At(2 * i));
    EXPECT_FALSE(rates.Take("uid:" + std::to_string(i), At(2 * i)));
  }
  EXPECT_LE(rates.remembered(), 64u);
}

}  // namespace
}  // namespace geminid::core
