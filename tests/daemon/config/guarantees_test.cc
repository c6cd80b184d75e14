// The guarantees of tenants, and the other parts of a quota's line that are not limits.
#include "daemon/config/guarantees.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace geminid::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr uint64_t kMiB = uint64_t{1} << 20;

TEST(ReadGuarantees, GoodLine_IsRead) {
  v1::TenantQuota line;
  line.set_guaranteed_host_memory("4MiB");
  line.set_guaranteed_device_memory("1MiB");
  line.set_weight(3);
  line.set_max_priority(-5);
  v1::DeviceQuota* device = line.add_device();
  device->set_index(1);
  device->set_guaranteed("2MiB");
  TenantQuota quota;
  quota.tenant = "uid:7";
  EXPECT_THAT(ReadGuarantees(line, &quota), IsEmpty());
  EXPECT_EQ(quota.guaranteed_host_bytes, 4 * kMiB);
  EXPECT_EQ(quota.guaranteed_device_bytes, kMiB);
  EXPECT_EQ(quota.guaranteed_by_device.at(1), 2 * kMiB);
  EXPECT_EQ(quota.weight, 3u);
  EXPECT_EQ(quota.max_priority, -5);
}

TEST(ReadGuarantees, EmptyLine_HasWeightOneAndNoGuarantee) {
  TenantQuota quota;
  EXPECT_THAT(ReadGuarantees({}, &quota), IsEmpty());
  EXPECT_EQ(quota.weight, 1u);
  EXPECT_EQ(quota.max_priority, 0);
  EXPECT_EQ(quota.guaranteed_host_bytes, 0u);
}

TEST(ReadGuarantees, WhatCannotBe_IsNamed) {
  v1::TenantQuota line;
  line.set_guaranteed_host_memory("4MiB");
  line.set_weight(1001);
  line.set_max_priority(101);
  TenantQuota quota;
  quota.tenant = "*";
  quota.host_bytes = kMiB;
  EXPECT_THAT(
      ReadGuarantees(line, &quota),
      ElementsAre(Pair("guaranteed_host_memory", HasSubstr("limit of 1.0 MiB")),
                  Pair("tenant", HasSubstr("many tenants")), Pair("weight", HasSubstr("1 to 1000")),
                  Pair("max_priority", HasSubstr("-100 to 100"))));
}

TEST(ReadGuarantees, WeightOfZero_IsRefused) {
  v1::TenantQuota line;
  line.set_weight(0);
  TenantQuota quota;
  EXPECT_THAT(ReadGuarantees(line, &quota),
              ElementsAre(Pair("weight", HasSubstr("0 is not from 1 to 1000"))));
}

TEST(ReadGuarantees, SizesWithoutAUnit_AreRefused) {
  v1::TenantQuota line;
  line.set_guaranteed_host_memory("16");
  line.add_device()->set_guaranteed("32");
  TenantQuota quota;
  EXPECT_THAT(ReadGuarantees(line, &quota),
              ElementsAre(Pair("guaranteed_host_memory", HasSubstr("'16' has no unit")),
                          Pair("device[0].guaranteed", HasSubstr("'32' has no unit"))));
}

TEST(CheckGuarantees, MoreThanThereIs_IsRefusedWithBothNumbers) {
  Settings settings;
  settings.host_bytes = 8 * kMiB;
  settings.devices = {{.bytes = 4 * kMiB}, {.bytes = 4 * kMiB}};
  settings.quotas.resize(2);
  for (TenantQuota& quota : settings.quotas) {
    quota.guaranteed_host_bytes = 4 * kMiB;
    quota.guaranteed_device_bytes = 2 * kMiB;
  }
  EXPECT_TRUE(CheckGuarantees(settings).ok());
  settings.quotas[0].guaranteed_by_device[1] = 3 * kMiB;
  const absl::Status refused = CheckGuarantees(settings);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("5.0 MiB of device 1, but there are only 4.0 MiB"));
}

}  // namespace
}  // namespace geminid::config
