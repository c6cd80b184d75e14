// The catalogue follows Prometheus' rules and its own bounds, and docs/metrics.md agrees with it.
#include "daemon/metrics/catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "daemon/metrics/families.h"

namespace geminid::metrics {
namespace {

// The most series of all metrics together.
MostSeries MostOfAll() {
  MostSeries most = {0, 0};
  for (const Metric* metric : Catalogue()) {
    most.fixed += metric->most.fixed;
    most.per_device += metric->most.per_device;
  }
  return most;
}

using ::testing::Contains;
using ::testing::HasSubstr;

TEST(Catalogue, NamesTypesAndHelp_KeepPrometheusRules) {
  std::set<std::string> names;
  for (const Metric* metric : Catalogue()) {
    const std::string name = metric->name;
    EXPECT_TRUE(names.insert(name).second) << name;
    EXPECT_TRUE(absl::StartsWith(name, "geminid_") || absl::StartsWith(name, "process_")) << name;
    EXPECT_EQ(absl::EndsWith(name, "_total"), metric->type == kCounter) << name;
    EXPECT_EQ(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_"), std::string::npos) << name;
    EXPECT_TRUE(absl::EndsWith(metric->help, ".")) << name;
    for (const char* label : metric->labels) {
      if (label == nullptr) continue;
      EXPECT_NE(std::string(label), "job") << "Prometheus' own";
      EXPECT_NE(std::string(label), "instance") << "Prometheus' own";
    }
  }
}

// --- the bounds ----------------------------------------------------------------------------------

constexpr size_t kDevices = shm::kMaxDevices;

// A reading with more than the bound of everything that clients can create.
Reading LargestReading() {
  Reading reading;
  reading.sessions_survive = true;
  SessionCounters counters;
  const size_t sessions = 2 * kMaxSessionSeries;
  reading.accounts = {{core::kHostAccount, {.capacity_bytes = 1}},
                      {core::kDiskAccount, {.capacity_bytes = 1}}};
  for (uint32_t i = 0; i < kDevices; ++i) {
    reading.accounts.push_back({core::DeviceAccount(shm::DeviceIndex{i}), {.capacity_bytes = 1}});
  }
  for (uint64_t id = 1; id <= sessions; ++id) {
    const shm::SessionId session{id};
    const shm::DeviceIndex device{static_cast<uint32_t>(id % kDevices)};
    const std::string tenant = absl::StrCat("uid:", id);
    counters.Update(session, {tenant, "job", "0", absl::StrCat(id)}, {.steps = 1}, 1);
    reading.sessions.push_back({.id = session,
                                .tenant = tenant,
                                .state = core::SessionState::kKept,
                                .device = device,
                                .host_bytes = 1,
                                .device_bytes = 1,
                                .batch = {1, 1, 1},
                                .plan = PlanReading{1, 1},
                                .registration = shm::HostRegistration{3, 1, 1, 3, 1, 1}});
    for (size_t kind = 1; kind <= kKinds; ++kind) {
      for (const core::Account& account : {core::kHostAccount, core::DeviceAccount(device)}) {
        reading.lines.push_back({.account = account,
                                 .session = session,
                                 .kind = static_cast<shm::ChunkKind>(kind),
                                 .bytes = 1});
      }
    }
    for (const auto& [account, totals] : reading.accounts) {
      reading.tenants.push_back({tenant, account, 1, 1, 1});
    }
  }
  reading.counted = counters.Read();
  reading.devices.resize(kDevices);
  for (uint32_t device = 0; device < kDevices; ++device) {
    reading.gpus.push_back({.device = device,
                            .serving = true,
                            .total_bytes = 1,
                            .uncorrected_errors = 1,
                            .uncorrected_errors_ever = 1,
                            .retired_pages_pending = true,
                            .row_remap_pending = true,
                            .row_remap_failed = true});
    for (uint32_t xid = 0; xid < kXidSeries; ++xid) reading.gpus.back().xids[xid] = 1;
  }
  reading.allocations = {{shm::Tier::kHost, {}}, {shm::Tier::kDevice, {}}};
  reading.jobs.oldest_wait_timestamp_seconds = 1;
  for (size_t i = 0; i < kMaxMethods; ++i) {
    CallReading& call = reading.calls[absl::StrCat("S/", i)];
    for (size_t code = 1; code <= kErrorCodes; ++code) call.errors[absl::StrCat(code)] = 1;
  }
  for (size_t i = 0; i < 2 * core::Refusals::kMostRows; ++i) {
    reading.refusals.push_back({"sessions", absl::StrCat("uid:", i), 1});
  }
  reading.process = {1, 1, 1, 1, 1, 1, 1};
  return reading;
}

// How many lines each metric has in the page. A histogram's series count for the histogram.
std::map<std::string, size_t> SeriesOf(const std::string& page) {
  std::map<std::string, size_t> series;
  std::string metric;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (absl::StartsWith(line, "# TYPE ")) {
      metric = std::vector<std::string>(absl::StrSplit(line, ' '))[2];
    } else if (line[0] != '#') {
      ++series[metric];
    }
  }
  return series;
}

TEST(Catalogue, LargestPage_HasNoMoreSeriesThanStated) {
  const std::map<std::string, size_t> series = SeriesOf(TextPage(LargestReading()));
  EXPECT_EQ(series.size(), Catalogue().size()) << "each metric has a series at least";
  size_t all = 0;
  for (const Metric* metric : Catalogue()) {
    ASSERT_TRUE(series.contains(metric->name)) << metric->name;
    const size_t count = series.at(metric->name);
    EXPECT_LE(count, metric->most.fixed + kDevices * metric->most.per_device) << metric->name;
    all += count;
  }
  const MostSeries most = MostOfAll();
  EXPECT_LE(all, most.fixed + kDevices * most.per_device);
  RecordProperty("series", static_cast<int>(all));
}

// A bound that is never reached would prove nothing.
TEST(Catalogue, BoundsOfSessionsAndTenants_AreReached) {
  const std::map<std::string, size_t> series = SeriesOf(TextPage(LargestReading()));
  for (const Metric* metric :
       {&kStall, &kAdmissionWait, &kSteps, &kSessionTransfer, &kPlanBytes, &kSessionBytes,
        &kSessionInUse, &kTenantBytes, &kRpcSeconds, &kRpcErrors}) {
    EXPECT_EQ(series.at(metric->name), metric->most.fixed + kDevices * metric->most.per_device)
        << metric->name;
  }
}

TEST(Catalogue, NoSeries_IsThereTwice) {
  std::istringstream page(TextPage(LargestReading()));
  std::set<std::string> seen;
  for (std::string line; std::getline(page, line);) {
    if (line[0] == '#') continue;
    ASSERT_TRUE(seen.insert(line.substr(0, line.rfind(' '))).second) << line;
  }
}

// --- docs/metrics.md -----------------------------------------------------------------------------

std::string Most(const MostSeries& most) {
  if (most.per_device == 0) return absl::StrCat(most.fixed);
  const std::string each = absl::StrCat(most.per_device, " per device");
  return most.fixed == 0 ? each : absl::StrCat(most.fixed, " + ", each);
}

// The expected row of the page's table.
std::string RowOf(const Metric& metric) {
  std::vector<std::string> labels;
  for (const char* label : metric.labels) {
    if (label != nullptr) labels.push_back(absl::StrCat("`", label, "`"));
  }
  return absl::StrCat("| `", metric.name, "` | ", Name(metric.type), " | ",
                      absl::StrJoin(labels, ", "), " | ", Most(metric.most), " | ", metric.help,
                      " |");
}

// The differences between the page and the code: rows without a metric, and missing rows.
std::vector<std::string> Differences(const std::string& page) {
  std::vector<std::string> differences;
  std::set<std::string> rows;
  for (const auto& line_view : absl::StrSplit(page, '\n')) {
    const std::string line(line_view);
    if (absl::StartsWith(line, "| `geminid_") || absl::StartsWith(line, "| `process_")) {
      rows.insert(line);
    }
  }
  for (const Metric* metric : Catalogue()) {
    if (rows.erase(RowOf(*metric)) == 0) {
      differences.push_back("docs/metrics.md lacks this row: " + RowOf(*metric));
    }
  }
  for (const std::string& row : rows) differences.push_back("the code has no such metric: " + row);
  const std::string all = absl::StrCat("at most ", Most(MostOfAll()));
  if (!absl::StrContains(page, all)) differences.push_back("it does not say " + all);
  return differences;
}

std::string DocumentedMetrics() {
  std::ifstream file(GEMINID_METRICS_PAGE);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(MetricsDocument, HasTheRowsOfTheCode) {
  EXPECT_EQ(absl::StrJoin(Differences(DocumentedMetrics()), "\n"), "");
}

TEST(MetricsDocument, WrongRows_AreFound) {
  std::string page = DocumentedMetrics();
  const std::string row = RowOf(kEvictions);
  const size_t at = page.find(row);
  ASSERT_NE(at, std::string::npos);
  std::string without = page;
  without.erase(at, row.size());
  EXPECT_THAT(Differences(without), Contains(HasSubstr("lacks this row: " + row)));
  EXPECT_THAT(Differences(page + "\n| `geminid_colour` | gauge | | 1 | Its colour. |\n"),
              Contains(HasSubstr("no such metric: | `geminid_colour`")));
  EXPECT_EQ(Differences("").size(), Catalogue().size() + 1);
}

}  // namespace
}  // namespace geminid::metrics
