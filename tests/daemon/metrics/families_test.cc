#include "daemon/metrics/families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "daemon/metrics/process.h"

namespace geminid::metrics {
namespace {

using ::testing::HasSubstr;

const prometheus::MetricFamily& Find(const std::vector<prometheus::MetricFamily>& families,
                                     const std::string& name) {
  for (const prometheus::MetricFamily& family : families) {
    if (family.name == name) return family;
  }
  ADD_FAILURE() << "there is no " << name;
  return families.front();
}

TEST(Families, Names_AreUniqueAndDocumented) {
  std::set<std::string> names;
  for (const prometheus::MetricFamily& family : Families(Reading())) {
    EXPECT_TRUE(names.insert(family.name).second) << family.name;
    EXPECT_NE(family.help, "") << family.name;
    const bool total =
        family.name.size() > 6 && family.name.compare(family.name.size() - 6, 6, "_total") == 0;
    EXPECT_EQ(total, family.type == prometheus::MetricType::Counter) << family.name;
  }
}

TEST(Families, Workloads_AreBounded) {
  Reading reading;
  for (int rank = 0; rank < 100; ++rank) {
    SessionReading session;
    session.workload = "demo";
    session.rank = rank;
    session.stall_nanoseconds[0] = 1'000'000'000;
    session.plan_transfer_bytes = 10;
    reading.sessions.push_back(session);
  }
  const auto families = Families(reading);
  const prometheus::MetricFamily& plan = Find(families, "geminid_plan_transfer_bytes");
  EXPECT_EQ(plan.metric.size(), kMaxWorkloadRanks + 1);
  double sum = 0;
  double other = 0;
  for (const prometheus::ClientMetric& metric : plan.metric) {
    sum += metric.gauge.value;
    if (metric.label[0].value == "other") other = metric.gauge.value;
  }
  EXPECT_EQ(sum, 1000);
  EXPECT_EQ(other, 10.0 * (100 - kMaxWorkloadRanks));
}

TEST(Families, Page_HasExactLargeNumbers) {
  Reading reading;
  reading.version = "9.9";
  reading.tiers[1].capacity_bytes = (uint64_t{1} << 40) + 1;
  const std::string page = TextPage(Families(reading));
  EXPECT_THAT(page, HasSubstr("geminid_build_info{version=\"9.9\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("geminid_tier_capacity_bytes{tier=\"host\"} 1099511627777\n"));
}

TEST(Process, Read_IsPlausible) {
  const ProcessReading reading = ReadProcess();
  EXPECT_GT(reading.resident_bytes, uint64_t{1} << 20);
  EXPECT_GE(reading.virtual_bytes, reading.resident_bytes);
  EXPECT_GE(reading.open_fds, 3u);
  EXPECT_GE(reading.threads, 1u);
  EXPECT_GT(reading.start_time_seconds, 1.5e9);
}

}  // namespace
}  // namespace geminid::metrics
