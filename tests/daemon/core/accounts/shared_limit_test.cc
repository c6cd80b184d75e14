#include "daemon/core/accounts/shared_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"

namespace geminid::core {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

uint64_t TakeAll(SharedLimit* limit, const std::string& tenant) {
  while (limit->Take(tenant, 1).ok()) {
  }
  return limit->UsedBy(tenant);
}

TEST(SharedLimit, EachTenantTakesAllItGets_TheNextOneStillGetsSome) {
  SharedLimit sessions("sessions", 256);
  EXPECT_EQ(TakeAll(&sessions, "uid:1"), 128u);
  EXPECT_EQ(TakeAll(&sessions, "uid:2"), 64u);
  EXPECT_EQ(TakeAll(&sessions, "uid:3"), 32u);
  EXPECT_EQ(TakeAll(&sessions, "uid:4"), 16u);
  EXPECT_EQ(sessions.used(), 240u);
}

TEST(SharedLimit, WhatIsGivenBack_IsFreeForAnybody) {
  SharedLimit sessions("sessions", 8);
  ASSERT_EQ(TakeAll(&sessions, "uid:1"), 4u);
  ASSERT_EQ(TakeAll(&sessions, "uid:2"), 2u);
  sessions.Give("uid:1", 4);
  EXPECT_EQ(sessions.UsedBy("uid:1"), 0u);
  EXPECT_EQ(TakeAll(&sessions, "uid:2"), 4u);
  sessions.Give("uid:3", 1);  // this tenant never took any
  EXPECT_EQ(sessions.used(), 4u);
}

TEST(SharedLimit, ManyAtOnce_AllOrNothing) {
  SharedLimit chunks("chunks", 100);
  EXPECT_FALSE(chunks.Take("uid:1", 51).ok());
  EXPECT_EQ(chunks.used(), 0u);
  EXPECT_TRUE(chunks.Take("uid:1", 50).ok());
  EXPECT_FALSE(chunks.Take("uid:1", ~uint64_t{0}).ok());
  EXPECT_FALSE(chunks.Take("uid:2", 26).ok());
  EXPECT_TRUE(chunks.Take("uid:2", 25).ok());
  EXPECT_TRUE(chunks.Take("uid:2", 0).ok());
}

TEST(SharedLimit, Refusal_NamesTheLimitTheTenantAndTheSetting) {
  SharedLimit sessions("sessions", 2);
  ASSERT_TRUE(sessions.Take("uid:1000", 1).ok());
  const absl::Status status = sessions.Take("uid:1000", 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("asked for 1 sessions: tenant uid:1000 holds 1, and 1 of the "
                              "daemon's 2 are free"),
                    HasSubstr("raise sessions in the daemon's configuration")));
}

TEST(SharedLimit, RandomUse_NobodyEverHoldsMoreThanWasFreeWhenItTook) {
  std::mt19937 random(3);
  SharedLimit limit("things", 500);
  for (int i = 0; i < 20000; ++i) {
    const std::string tenant = absl::StrCat("uid:", random() % 5);
    const uint64_t count = random() % 40;
    if (random() % 2 == 0) {
      limit.Give(tenant, count);
    } else if (limit.Take(tenant, count).ok()) {
      ASSERT_LE(limit.UsedBy(tenant), limit.total() - limit.used());
    }
    uint64_t sum = 0;
    for (int k = 0; k < 5; ++k) sum += limit.UsedBy(absl::StrCat("uid:", k));
    ASSERT_EQ(sum, limit.used());
  }
}

}  // namespace
}  // namespace geminid::core
