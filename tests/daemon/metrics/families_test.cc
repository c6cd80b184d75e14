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

TEST(Families, SessionsWithoutASeriesOfTheirOwn_AreSummed) {
  Reading reading;
  for (const SessionLabels& labels :
       {SessionLabels{"uid:1", "demo", "0", "1"}, OtherSessions(), OtherSessions()}) {
    reading.sessions.push_back({.labels = labels, .plan_transfer_bytes = 10});
  }
  const auto families = Families(reading);
  const prometheus::MetricFamily& plan = Find(families, "geminid_plan_transfer_bytes");
  ASSERT_EQ(plan.metric.size(), 2u);
  EXPECT_EQ(plan.metric[0].label[1].value, "other");
  EXPECT_EQ(plan.metric[0].gauge.value, 20);
  EXPECT_EQ(plan.metric[1].label[1].value, "demo");
  EXPECT_EQ(plan.metric[1].gauge.value, 10);
}

TEST(Families, Stall_HasASeriesPerSessionAndCause) {
  Reading reading;
  reading.series = {{.labels = {"uid:1", "demo", "0", "7"}, .stalls = {2'000'000'000}}};
  EXPECT_THAT(TextPage(Families(reading)),
              HasSubstr(absl::StrCat("geminid_client_stall_seconds_total{tenant=\"uid:1\",job="
                                     "\"demo\",rank=\"0\",session=\"7\",cause=\"",
                                     shm::Name(shm::StallCause{}), "\"} 2\n")));
}

TEST(Families, Page_HasExactLargeNumbers) {
  Reading reading;
  reading.version = "9.9";
  reading.accounts = {{core::kHostAccount, {.capacity_bytes = (uint64_t{1} << 40) + 1}}};
  const std::string page = TextPage(Families(reading));
  EXPECT_THAT(page, HasSubstr("geminid_build_info{version=\"9.9\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("geminid_tier_capacity_bytes{tier=\"host\"} 1099511627777\n"));
}

TEST(Families, Devices_HaveLabelsOfTheirOwn) {
  Reading reading;
  const core::Account second = core::DeviceAccount(shm::DeviceIndex{1});
  reading.accounts = {{core::DeviceAccount(shm::DeviceIndex{0}), {.capacity_bytes = 10}},
                      {second, {.capacity_bytes = 20, .in_use_bytes = 5}}};
  reading.lines = {{.account = second, .kind = shm::ChunkKind::kWeight, .bytes = 5, .chunks = 1}};
  reading.devices.resize(2);
  reading.devices[1].transfers.At(shm::Direction::kHostToDevice, shm::TransferCause::kDemand) = {
      .bytes = 7, .transfers = 1};
  reading.devices[1].tickets_in_flight[0] = 3;
  reading.devices[1].overdue_tickets = 2;
  const std::string page = TextPage(Families(reading));
  for (const char* line :
       {"geminid_tier_capacity_bytes{tier=\"device\",device=\"0\"} 10\n",
        "geminid_tier_capacity_bytes{tier=\"device\",device=\"1\"} 20\n",
        "geminid_tier_bytes{tier=\"device\",device=\"1\",state=\"in_use\"} 5\n",
        "geminid_in_use_bytes{tier=\"device\",device=\"0\",kind=\"weight\"} 0\n",
        "geminid_in_use_bytes{tier=\"device\",device=\"1\",kind=\"weight\"} 5\n",
        "geminid_transfer_bytes_total{device=\"1\",direction=\"host_to_device\",cause=\"demand\"} "
        "7\n",
        "geminid_tickets_in_flight{device=\"0\",direction=\"host_to_device\"} 0\n",
        "geminid_tickets_in_flight{device=\"1\",direction=\"host_to_device\"} 3\n",
        "geminid_overdue_tickets_total{device=\"1\"} 2\n"}) {
    EXPECT_THAT(page, HasSubstr(line));
  }
}

TEST(Families, Limits_SayHowFullTheyAreAndHowOftenTheyRefused) {
  Reading reading;
  reading.limits = {{"sessions", 512, 7}};
  reading.tenant_limits = {{"calls_per_tenant", 256}};
  reading.refusals = {{"sessions", "uid:7", 3}};
  const std::string page = TextPage(Families(reading));
  EXPECT_THAT(page, HasSubstr("geminid_limit{limit=\"sessions\"} 512\n"));
  EXPECT_THAT(page, HasSubstr("geminid_limit_used{limit=\"sessions\"} 7\n"));
  EXPECT_THAT(page, HasSubstr("geminid_tenant_limit{limit=\"calls_per_tenant\"} 256\n"));
  EXPECT_THAT(page,
              HasSubstr("geminid_limit_refused_total{limit=\"sessions\",tenant=\"uid:7\"} 3\n"));
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
