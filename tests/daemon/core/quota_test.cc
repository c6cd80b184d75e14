#include "daemon/core/quota.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace geminid::core {
namespace {

using ::testing::HasSubstr;

TEST(Quota, NoLimits_EverythingIsAllowed) {
  Quota quota({});
  EXPECT_EQ(quota.FreeBytes("uid:1", Tier::kHost), kUnlimited);
  EXPECT_TRUE(quota.TryCharge("uid:1", Tier::kHost, uint64_t{1} << 60));
  EXPECT_EQ(quota.ChargedBytes("uid:1", Tier::kHost), uint64_t{1} << 60);
}

TEST(Quota, Limit_HoldsPerTenantAndTier) {
  Quota quota({{"uid:1", 100, 10}, {"*", 50, kUnlimited}});
  EXPECT_TRUE(quota.TryCharge("uid:1", Tier::kHost, 100));
  EXPECT_FALSE(quota.TryCharge("uid:1", Tier::kHost, 1));
  EXPECT_TRUE(quota.TryCharge("uid:1", Tier::kDevice, 10));
  EXPECT_FALSE(quota.TryCharge("uid:1", Tier::kDevice, 1));
  EXPECT_TRUE(quota.TryCharge("uid:2", Tier::kHost, 50));
  EXPECT_FALSE(quota.TryCharge("uid:2", Tier::kHost, 1));
  EXPECT_TRUE(quota.TryCharge("uid:3", Tier::kHost, 50));
  EXPECT_TRUE(quota.TryCharge("uid:3", Tier::kDevice, uint64_t{1} << 50));
}

TEST(Quota, Return_GivesRoomAndRefusesMoreThanCharged) {
  Quota quota({{"*", 100, 100}});
  ASSERT_TRUE(quota.TryCharge("a", Tier::kHost, 80));
  EXPECT_FALSE(quota.Return("a", Tier::kHost, 81).ok());
  EXPECT_FALSE(quota.Return("b", Tier::kHost, 1).ok());
  EXPECT_TRUE(quota.Return("a", Tier::kHost, 80).ok());
  EXPECT_EQ(quota.ChargedBytes("a", Tier::kHost), 0u);
  EXPECT_TRUE(quota.Return("nobody", Tier::kHost, 0).ok());
}

TEST(Quota, HugeRequest_DoesNotOverflow) {
  Quota quota({{"*", 100, 100}});
  ASSERT_TRUE(quota.TryCharge("a", Tier::kHost, 60));
  EXPECT_FALSE(quota.TryCharge("a", Tier::kHost, kUnlimited));
  EXPECT_FALSE(quota.TryCharge("a", Tier::kHost, kUnlimited - 59));
  EXPECT_EQ(quota.ChargedBytes("a", Tier::kHost), 60u);
}

TEST(Refusal, Text_SaysAskedFreeHoleHolderAndAdvice) {
  const absl::Status status = ToStatus({.tier = Tier::kHost,
                                        .asked_bytes = uint64_t{3} << 30,
                                        .free_bytes = uint64_t{1} << 30,
                                        .largest_hole_bytes = uint64_t{512} << 20,
                                        .limit = "the daemon may hand out 4 GiB",
                                        .top_holder = {"llm", 2, uint64_t{2} << 30},
                                        .advice = "ask for less"});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  const std::string text(status.message());
  EXPECT_THAT(text, HasSubstr("host memory"));
  EXPECT_THAT(text, HasSubstr("asked for 3.0 GiB (3221225472 bytes)"));
  EXPECT_THAT(text, HasSubstr("free 1.0 GiB"));
  EXPECT_THAT(text, HasSubstr("largest hole 512 MiB"));
  EXPECT_THAT(text, HasSubstr("the daemon may hand out 4 GiB"));
  EXPECT_THAT(text, HasSubstr("job llm rank 2 (2.0 GiB)"));
  EXPECT_THAT(text, HasSubstr("ask for less"));
}

TEST(Refusal, NobodyHoldsAny_IsSaid) {
  EXPECT_THAT(std::string(ToStatus({.tier = Tier::kDevice}).message()),
              HasSubstr("nobody holds any"));
}

}  // namespace
}  // namespace geminid::core
