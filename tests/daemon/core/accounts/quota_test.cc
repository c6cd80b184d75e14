#include "daemon/core/accounts/quota.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace geminid::core {
namespace {

using ::testing::HasSubstr;

constexpr Account kDevice0 = DeviceAccount(DeviceIndex{0});
constexpr Account kDevice1 = DeviceAccount(DeviceIndex{1});

TEST(Quota, NoLimits_EverythingIsAllowed) {
  Quota quota({});
  EXPECT_EQ(quota.FreeBytes("uid:1", kHostAccount), kUnlimited);
  EXPECT_TRUE(quota.TryCharge("uid:1", kHostAccount, uint64_t{1} << 60));
  EXPECT_EQ(quota.ChargedBytes("uid:1", kHostAccount), uint64_t{1} << 60);
}

TEST(Quota, Limit_HoldsPerTenantAndTier) {
  Quota quota({{"uid:1", 100, 10}, {"*", 50, kUnlimited}});
  EXPECT_TRUE(quota.TryCharge("uid:1", kHostAccount, 100));
  EXPECT_FALSE(quota.TryCharge("uid:1", kHostAccount, 1));
  EXPECT_TRUE(quota.TryCharge("uid:1", kDevice0, 10));
  EXPECT_FALSE(quota.TryCharge("uid:1", kDevice0, 1));
  EXPECT_TRUE(quota.TryCharge("uid:2", kHostAccount, 50));
  EXPECT_FALSE(quota.TryCharge("uid:2", kHostAccount, 1));
  EXPECT_TRUE(quota.TryCharge("uid:3", kHostAccount, 50));
  EXPECT_TRUE(quota.TryCharge("uid:3", kDevice0, uint64_t{1} << 50));
}

TEST(Quota, DeviceLimit_HoldsOnEachDeviceAlone) {
  Quota quota({{"uid:1", kUnlimited, 10, {{DeviceIndex{1}, 20}}}});
  EXPECT_TRUE(quota.TryCharge("uid:1", kDevice0, 10));
  EXPECT_FALSE(quota.TryCharge("uid:1", kDevice0, 1));
  EXPECT_TRUE(quota.TryCharge("uid:1", kDevice1, 20));
  EXPECT_FALSE(quota.TryCharge("uid:1", kDevice1, 1));
  EXPECT_EQ(quota.LimitBytes("uid:1", DeviceAccount(DeviceIndex{2})), 10u);
  EXPECT_FALSE(quota.Return("uid:1", kDevice0, 11).ok());
  EXPECT_TRUE(quota.Return("uid:1", kDevice0, 10).ok());
  EXPECT_EQ(quota.ChargedBytes("uid:1", kDevice1), 20u);
}

TEST(Quota, Return_GivesRoomAndRefusesMoreThanCharged) {
  Quota quota({{"*", 100, 100}});
  ASSERT_TRUE(quota.TryCharge("a", kHostAccount, 80));
  EXPECT_FALSE(quota.Return("a", kHostAccount, 81).ok());
  EXPECT_FALSE(quota.Return("b", kHostAccount, 1).ok());
  EXPECT_TRUE(quota.Return("a", kHostAccount, 80).ok());
  EXPECT_EQ(quota.ChargedBytes("a", kHostAccount), 0u);
  EXPECT_TRUE(quota.Return("nobody", kHostAccount, 0).ok());
}

TEST(Quota, HugeRequest_DoesNotOverflow) {
  Quota quota({{"*", 100, 100}});
  ASSERT_TRUE(quota.TryCharge("a", kHostAccount, 60));
  EXPECT_FALSE(quota.TryCharge("a", kHostAccount, kUnlimited));
  EXPECT_FALSE(quota.TryCharge("a", kHostAccount, kUnlimited - 59));
  EXPECT_EQ(quota.ChargedBytes("a", kHostAccount), 60u);
}

TEST(Refusal, Text_SaysAskedFreeHoleHolderAndAdvice) {
  const absl::Status status = ToStatus({.account = kHostAccount,
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

TEST(Refusal, OfADevice_NamesIt) {
  EXPECT_THAT(std::string(ToStatus({.account = kDevice1, .asked_bytes = 4096}).message()),
              ::testing::StartsWith("device 1: asked for 4.0 KiB (4096 bytes), free 0 B"));
}

TEST(Refusal, NobodyHoldsAny_IsSaid) {
  EXPECT_THAT(std::string(ToStatus({.account = kDevice0}).message()),
              HasSubstr("no job holds any"));
}

TEST(Quota, LineOfACgroupOrUser_HoldsForEachTenantBelowIt) {
  Quota quota({{.tenant = "cgroup:/", .host_bytes = 1},
               {.tenant = "cgroup:/kubepods", .host_bytes = 2},
               {.tenant = "cgroup:/kubepods/a/b", .host_bytes = 3},
               {.tenant = "uid:7", .host_bytes = 4},
               {.tenant = "uid:7,gid:8", .host_bytes = 5},
               {.tenant = "*", .host_bytes = 6}});
  const auto limit = [&](const std::string& tenant) {
    return quota.LimitBytes(tenant, kHostAccount);
  };
  EXPECT_EQ(limit("cgroup:/docker/x"), 1u);
  EXPECT_EQ(limit("cgroup:/kubepods"), 2u);
  EXPECT_EQ(limit("cgroup:/kubepods/a"), 2u);
  EXPECT_EQ(limit("cgroup:/kubepods/a/b/c"), 3u);
  EXPECT_EQ(limit("cgroup:/kubepods2/a"), 1u);
  EXPECT_EQ(limit("uid:7,gid:9"), 4u);
  EXPECT_EQ(limit("uid:7,gid:8"), 5u);
  EXPECT_EQ(limit("uid:77,gid:8"), 6u);
  EXPECT_EQ(limit("unresolved"), 6u);
  EXPECT_TRUE(quota.TryCharge("cgroup:/kubepods/a", kHostAccount, 2));
  EXPECT_TRUE(quota.TryCharge("cgroup:/kubepods/c", kHostAccount, 2)) << "each for itself";
  EXPECT_FALSE(quota.TryCharge("cgroup:/kubepods/a", kHostAccount, 1));
}

}  // namespace
}  // namespace geminid::core
