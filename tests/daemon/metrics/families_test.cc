#include "daemon/metrics/families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <map>

#include "absl/strings/str_cat.h"
#include "base/unique_fd.h"
#include "daemon/metrics/call_times.h"
#include "daemon/metrics/process.h"

namespace geminid::metrics {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kForEver = ~uint64_t{0};

std::string PageOf(const Reading& reading) { return TextPage(reading); }

// Adds a session of a tenant and a job of its own.
void AddSession(Reading* reading, SessionCounters* counters, uint64_t id,
                const SessionCounts& counts, std::optional<PlanReading> plan = std::nullopt) {
  const std::string tenant = absl::StrCat("uid:", id);
  counters->Update(shm::SessionId{id}, {tenant, "demo", "0", absl::StrCat(id)}, counts, kForEver);
  reading->sessions.push_back({.id = shm::SessionId{id},
                               .tenant = tenant,
                               .host_bytes = 100,
                               .device_bytes = 10,
                               .plan = plan});
  reading->counted = counters->Read();
}

TEST(Families, SessionsWithoutASeriesOfTheirOwn_AreSummed) {
  Reading reading;
  SessionCounters counters;
  for (uint64_t id = 1; id <= kMaxSessionSeries + 2; ++id) {
    AddSession(&reading, &counters, id, {}, PlanReading{10, 5});
  }
  const std::string page = PageOf(reading);
  const std::string other = "{tenant=\"other\",job_name=\"other\",rank=\"other\",session=\"other\"";
  EXPECT_THAT(page, HasSubstr("geminid_plan_transfer_bytes" + other + "} 20\n"));
  EXPECT_THAT(page, HasSubstr("geminid_plan_lower_bound_bytes" + other + "} 10\n"));
  EXPECT_THAT(page, HasSubstr("geminid_session_bytes" + other + ",tier=\"host\"} 200\n"));
}

TEST(Families, SurvivalOfSessions_IsShownWhereItIsWanted) {
  Reading reading;
  EXPECT_THAT(PageOf(reading), Not(HasSubstr("geminid_sessions_survive ")));
  reading.sessions_survive = true;
  EXPECT_THAT(PageOf(reading), HasSubstr("\ngeminid_sessions_survive 1\n"));
  reading.sessions_survive = false;
  EXPECT_THAT(PageOf(reading), HasSubstr("\ngeminid_sessions_survive 0\n"));
}

TEST(Families, SameNameOfTwoTenants_StaysApart) {
  Reading reading;
  SessionCounters counters;
  AddSession(&reading, &counters, 1,
             {.stalls = {2'000'000'000}, .queued = 500'000'000, .steps = 3, .disk_bytes = {8, 9}});
  AddSession(&reading, &counters, 2, {.stalls = {4'000'000'000}, .transfer_bytes = {7, 0}});
  const std::string page = PageOf(reading);
  const std::string first = "{tenant=\"uid:1\",job_name=\"demo\",rank=\"0\",session=\"1\"";
  const std::string second = "{tenant=\"uid:2\",job_name=\"demo\",rank=\"0\",session=\"2\"";
  const std::string cause = absl::StrCat(",cause=\"", shm::Name(shm::StallCause{}), "\"} ");
  EXPECT_THAT(page, HasSubstr("geminid_client_stall_seconds_total" + first + cause + "2\n"));
  EXPECT_THAT(page, HasSubstr("geminid_client_stall_seconds_total" + second + cause + "4\n"));
  EXPECT_THAT(page, HasSubstr("geminid_client_queued_seconds_total" + first + "} 0.5\n"));
  EXPECT_THAT(page, HasSubstr("geminid_client_steps_total" + first + "} 3\n"));
  EXPECT_THAT(page,
              HasSubstr("geminid_client_disk_bytes_total" + first + ",direction=\"read\"} 8\n"));
  EXPECT_THAT(page,
              HasSubstr("geminid_client_disk_bytes_total" + first + ",direction=\"written\"} 9\n"));
  EXPECT_THAT(page, HasSubstr("geminid_session_transfer_bytes_total" + second +
                              ",direction=\"host_to_device\"} 7\n"));
  EXPECT_THAT(page, Not(HasSubstr("geminid_plan_transfer_bytes"))) << "there is no plan";
}

TEST(Families, MemoryOfARank_IsShownByTierAndKind) {
  Reading reading;
  SessionCounters counters;
  AddSession(&reading, &counters, 4, {});
  reading.lines = {{.account = core::kHostAccount,
                    .session = shm::SessionId{4},
                    .kind = shm::ChunkKind::kWeight,
                    .bytes = 60,
                    .chunks = 1}};
  reading.sessions.front().disk_file_bytes = 70;
  reading.sessions.front().batch = {.per_step = 8, .noise_scale = 41.5};
  const std::string page = PageOf(reading);
  const std::string rank = "{tenant=\"uid:4\",job_name=\"demo\",rank=\"0\",session=\"4\"";
  EXPECT_THAT(page, HasSubstr("geminid_session_bytes" + rank + ",tier=\"host\"} 100\n"));
  EXPECT_THAT(page,
              HasSubstr("geminid_session_bytes" + rank + ",tier=\"device\",device=\"0\"} 10\n"));
  EXPECT_THAT(page, HasSubstr("geminid_client_disk_file_bytes" + rank + "} 70\n"));
  EXPECT_THAT(page, HasSubstr("geminid_client_step_sequences" + rank + "} 8\n"));
  EXPECT_THAT(page, HasSubstr("geminid_client_gradient_noise_sequences" + rank + "} 41.5\n"));
  EXPECT_THAT(page, Not(HasSubstr("geminid_client_advised"))) << "it is not known yet";
  EXPECT_THAT(page, HasSubstr("geminid_session_in_use_bytes" + rank +
                              ",tier=\"host\",kind=\"weight\"} 60\n"));
}

TEST(Families, Tenants_HaveLimitsGuaranteesAndWhatIsKept) {
  Reading reading;
  reading.tenants = {{.tenant = "uid:1",
                      .account = core::kHostAccount,
                      .charged_bytes = 40,
                      .limit_bytes = 90,
                      .guaranteed_bytes = 20},
                     {.tenant = "uid:2", .account = core::kHostAccount, .charged_bytes = 5}};
  reading.sessions = {{.tenant = "uid:2", .state = core::SessionState::kKept, .host_bytes = 5}};
  const std::string page = PageOf(reading);
  EXPECT_THAT(page, HasSubstr("geminid_tenant_bytes{tenant=\"uid:1\",tier=\"host\"} 40\n"));
  EXPECT_THAT(page, HasSubstr("geminid_tenant_limit_bytes{tenant=\"uid:1\",tier=\"host\"} 90\n"));
  EXPECT_THAT(page,
              HasSubstr("geminid_tenant_guaranteed_bytes{tenant=\"uid:1\",tier=\"host\"} 20\n"));
  EXPECT_THAT(page, HasSubstr("geminid_tenant_kept_bytes{tenant=\"uid:2\",tier=\"host\"} 5\n"));
  EXPECT_THAT(page, Not(HasSubstr("limit_bytes{tenant=\"uid:2\""))) << "it has none";
  EXPECT_THAT(page, Not(HasSubstr("guaranteed_bytes{tenant=\"uid:2\"")));
}

TEST(Families, MoreTenantsThanSeries_ThoseWithMostAreShown) {
  Reading reading;
  for (uint64_t i = 1; i <= kMaxTenantSeries + 2; ++i) {
    reading.tenants.push_back({.tenant = absl::StrCat("uid:", i),
                               .account = core::kHostAccount,
                               .charged_bytes = i,
                               .limit_bytes = 1000});
  }
  const std::string page = PageOf(reading);
  EXPECT_THAT(page, HasSubstr("geminid_tenant_bytes{tenant=\"other\",tier=\"host\"} 3\n"));
  EXPECT_THAT(page, HasSubstr("geminid_tenant_bytes{tenant=\"uid:3\",tier=\"host\"} 3\n"));
  EXPECT_THAT(page, Not(HasSubstr("tenant=\"uid:2\""))) << "not even its limit";
}

TEST(Families, Page_HasExactLargeNumbers) {
  Reading reading;
  reading.version = "9.9";
  reading.accounts = {{core::kHostAccount, {.capacity_bytes = (uint64_t{1} << 40) + 1}}};
  const std::string page = PageOf(reading);
  EXPECT_THAT(page, HasSubstr("geminid_build_info{version=\"9.9\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("geminid_tier_capacity_bytes{tier=\"host\"} 1099511627777\n"));
}

TEST(Page, LabelsOfStrangers_AreEscaped) {
  Reading reading;
  reading.version = "a\"b\\c\nd";
  EXPECT_THAT(PageOf(reading), HasSubstr("geminid_build_info{version=\"a\\\"b\\\\c\\nd\"} 1\n"));
}

TEST(Page, Numbers_AreReadBackExactly) {
  for (const double value : {0.1, 1e-9, 1.5e300, 123456789.25, -2.0, 4503599627370497.5}) {
    Reading reading;
    reading.process.cpu_seconds = value;
    const std::string page = PageOf(reading);
    const std::string mark = "\nprocess_cpu_seconds_total ";
    EXPECT_EQ(std::stod(page.substr(page.find(mark) + mark.size())), value);
  }
}

TEST(Families, TierThatIsNotThere_HasNoSeries) {
  Reading reading;
  reading.accounts = {{core::kHostAccount, {.capacity_bytes = 8, .free_bytes = 8}},
                      {core::kDiskAccount, {}}};
  const std::string page = PageOf(reading);
  EXPECT_THAT(page, HasSubstr("geminid_in_use_bytes{tier=\"host\",kind=\"weight\"} 0\n"))
      << "known before it has a value";
  EXPECT_THAT(page, Not(HasSubstr("tier=\"disk\"")));
}

TEST(Families, Devices_HaveLabelsOfTheirOwn) {
  Reading reading;
  const core::Account second = core::DeviceAccount(shm::DeviceIndex{1});
  reading.accounts = {{core::DeviceAccount(shm::DeviceIndex{0}), {.capacity_bytes = 10}},
                      {second, {.capacity_bytes = 20, .in_use_bytes = 5, .peak_in_use_bytes = 6}}};
  reading.lines = {{.account = second, .kind = shm::ChunkKind::kWeight, .bytes = 5, .chunks = 1}};
  reading.devices.resize(2);
  reading.devices[1].transfers.At(shm::Direction::kHostToDevice, shm::TransferCause::kDemand) = {
      .bytes = 7, .transfers = 1};
  core::LinkReading& link = reading.devices[1].links[0];
  link.flight = {3, 30};
  link.queued = 4;
  link.queued_bytes = 40;
  link.busy = core::Duration::Milliseconds(250);
  link.copies.Add(core::Duration::Milliseconds(2));
  reading.devices[1].overdue_tickets = 2;
  const std::string page = PageOf(reading);
  const std::string h2d = "{device=\"1\",direction=\"host_to_device\"";
  for (const std::string& line : {
           std::string("geminid_tier_capacity_bytes{tier=\"device\",device=\"0\"} 10\n"),
           std::string("geminid_tier_capacity_bytes{tier=\"device\",device=\"1\"} 20\n"),
           std::string("geminid_tier_peak_in_use_bytes{tier=\"device\",device=\"1\"} 6\n"),
           std::string("geminid_tier_bytes{tier=\"device\",device=\"1\",state=\"in_use\"} 5\n"),
           std::string("geminid_in_use_bytes{tier=\"device\",device=\"0\",kind=\"weight\"} 0\n"),
           std::string("geminid_in_use_bytes{tier=\"device\",device=\"1\",kind=\"weight\"} 5\n"),
           "geminid_transfer_bytes_total" + h2d + ",cause=\"demand\"} 7\n",
           "geminid_transfers_in_flight" + h2d + "} 3\n",
           "geminid_transfers_in_flight_bytes" + h2d + "} 30\n",
           "geminid_transfers_queued" + h2d + "} 4\n",
           "geminid_transfers_queued_bytes" + h2d + "} 40\n",
           "geminid_link_busy_seconds_total" + h2d + "} 0.25\n",
           "geminid_transfer_seconds_bucket" + h2d + ",le=\"0.001\"} 0\n",
           "geminid_transfer_seconds_bucket" + h2d + ",le=\"+Inf\"} 1\n",
           "geminid_transfer_seconds_sum" + h2d + "} 0.002\n",
           std::string("geminid_transfers_overdue_total{device=\"1\"} 2\n"),
       }) {
    EXPECT_THAT(page, HasSubstr(line));
  }
}

TEST(Families, Histogram_IsCumulative) {
  Reading reading;
  for (const int64_t milliseconds : {0, 2, 20, 200'000}) {
    reading.allocations[shm::Tier::kHost].Add(core::Duration::Milliseconds(milliseconds));
  }
  const std::string page = PageOf(reading);
  for (const char* end : {"le=\"1e-05\"} 1\n", "le=\"0.003\"} 2\n", "le=\"0.03\"} 3\n",
                          "le=\"30\"} 3\n", "le=\"+Inf\"} 4\n"}) {
    EXPECT_THAT(page,
                HasSubstr(absl::StrCat("geminid_allocation_seconds_bucket{tier=\"host\",", end)));
  }
  EXPECT_THAT(page, HasSubstr("geminid_allocation_seconds_count{tier=\"host\"} 4\n"));
}

TEST(Families, Jobs_SayHowManyAreInWhichStateAndSinceWhenOneWaits) {
  Reading reading;
  EXPECT_THAT(PageOf(reading), Not(HasSubstr("oldest_wait"))) << "nobody waits";
  reading.jobs.by_state[core::JobState::kQueued] = 2;
  reading.jobs.oldest_wait_timestamp_seconds = 1234.5;
  reading.jobs.counters = {.admitted = 7, .preempted = 3, .undone = 1};
  reading.jobs.ranks_changed = 5;
  reading.jobs.ranks_not_changed = 2;
  reading.jobs.scales = {.done = 6, .refused = 4, .gone_back = 8};
  reading.jobs.moves = {.done = 11, .refused = 9, .gone_back = 10};
  reading.jobs.shrunk = 12;
  const std::string page = PageOf(reading);
  for (const char* line :
       {"geminid_jobs{state=\"queued\"} 2\n", "geminid_jobs{state=\"running\"} 0\n",
        "geminid_jobs_oldest_wait_timestamp_seconds 1234.5\n", "geminid_jobs_admitted_total 7\n",
        "geminid_jobs_preempted_total 3\n", "geminid_jobs_undone_total 1\n",
        "geminid_sharing_changes_total{outcome=\"done\"} 5\n",
        "geminid_sharing_changes_total{outcome=\"refused\"} 2\n",
        "geminid_scale_requests_total{outcome=\"done\"} 6\n",
        "geminid_scale_requests_total{outcome=\"refused\"} 4\n",
        "geminid_scale_requests_total{outcome=\"gone_back\"} 8\n",
        "geminid_move_requests_total{outcome=\"done\"} 11\n",
        "geminid_move_requests_total{outcome=\"refused\"} 9\n",
        "geminid_move_requests_total{outcome=\"gone_back\"} 10\n",
        "geminid_jobs_shrunk_total 12\n"}) {
    EXPECT_THAT(page, HasSubstr(line));
  }
}

TEST(Families, Gpus_AreShownWhereThereAreAny) {
  Reading reading;
  EXPECT_THAT(PageOf(reading), ::testing::Not(HasSubstr("geminid_gpu")));
  reading.gpus = {{.device = 1,
                   .serving = true,
                   .restarts = 2,
                   .total_bytes = 100,
                   .free_bytes = 60,
                   .slab_bytes = 30},
                  {}};
  reading.gpus[1].device = 2;
  const std::string page = PageOf(reading);
  for (const char* line :
       {"geminid_gpu_agent_up{device=\"1\"} 1\n", "geminid_gpu_agent_up{device=\"2\"} 0\n",
        "geminid_gpu_agent_restarts_total{device=\"1\"} 2\n",
        "geminid_gpu_memory_bytes{device=\"1\",state=\"total\"} 100\n",
        "geminid_gpu_memory_bytes{device=\"1\",state=\"free\"} 60\n",
        "geminid_gpu_memory_bytes{device=\"1\",state=\"slabs\"} 30\n"}) {
    EXPECT_THAT(page, HasSubstr(line));
  }
  EXPECT_THAT(page, ::testing::Not(HasSubstr("geminid_gpu_memory_bytes{device=\"2\"")));
}

TEST(Families, HealthOfAGpu_IsOneOfFourAndLeavesOutWhatTheDriverDoesNotSay) {
  Reading reading;
  reading.gpus = {{.device = 1,
                   .health = "degraded",
                   .uncorrected_errors = 0,
                   .row_remap_pending = true,
                   .row_remap_failed = false,
                   .xids = {{63, 2}}},
                  {.device = 2}};
  const std::string page = PageOf(reading);
  for (const char* line : {"geminid_gpu_health{device=\"1\",health=\"degraded\"} 1\n",
                           "geminid_gpu_health{device=\"1\",health=\"unhealthy\"} 0\n",
                           "geminid_gpu_health{device=\"2\",health=\"unknown\"} 1\n",
                           "geminid_gpu_uncorrected_errors{device=\"1\",since=\"load\"} 0\n",
                           "geminid_gpu_memory_fault{device=\"1\",fault=\"row_remap_pending\"} 1\n",
                           "geminid_gpu_memory_fault{device=\"1\",fault=\"row_remap_failed\"} 0\n",
                           "geminid_gpu_xids_total{device=\"1\",xid=\"63\"} 2\n"}) {
    EXPECT_THAT(page, HasSubstr(line));
  }
  for (const char* part :
       {"since=\"ever\"", "fault=\"retired_pages_pending", "geminid_gpu_memory_fault{device=\"2\"",
        "geminid_gpu_uncorrected_errors{device=\"2\""}) {
    EXPECT_THAT(page, Not(HasSubstr(part)));
  }
}

TEST(Families, RegistrationsOfRanks_AreInThreePartsAndSummedInOther) {
  Reading reading;
  SessionCounters counters;
  for (uint64_t id = 1; id <= kMaxSessionSeries + 2; ++id) {
    AddSession(&reading, &counters, id, {});
    if (id > 1) reading.sessions.back().registration = {60, 30, 20, 6, 3, 2};
  }
  const std::string page = PageOf(reading);
  const std::string bytes = "geminid_client_registration_bytes{tenant=\"";
  const std::string pieces = "geminid_client_registration_pieces{tenant=\"";
  const std::string second = "uid:2\",job_name=\"demo\",rank=\"0\",session=\"2\",state=\"";
  const std::string other = "other\",job_name=\"other\",rank=\"other\",session=\"other\",state=\"";
  EXPECT_THAT(page, HasSubstr(bytes + second + "registered\"} 30\n"));
  EXPECT_THAT(page, HasSubstr(bytes + second + "refused\"} 20\n"));
  EXPECT_THAT(page, HasSubstr(bytes + second + "waiting\"} 10\n"));
  EXPECT_THAT(page, HasSubstr(pieces + second + "registered\"} 3\n"));
  EXPECT_THAT(page, HasSubstr(pieces + second + "refused\"} 2\n"));
  EXPECT_THAT(page, HasSubstr(pieces + second + "waiting\"} 1\n"));
  EXPECT_THAT(page, HasSubstr(bytes + other + "waiting\"} 20\n"));
  EXPECT_THAT(page, Not(HasSubstr(bytes + "uid:1\""))) << "it needs none";
}

TEST(Families, Limits_SayHowFullTheyAreAndHowOftenTheyRefused) {
  Reading reading;
  reading.session_limit = {7, 512};
  reading.plan_memory_bytes = {20, 30};
  reading.refusals = {{"sessions", "uid:7", 3}};
  const std::string page = PageOf(reading);
  EXPECT_THAT(page, HasSubstr("geminid_sessions_limit 512\n"));
  EXPECT_THAT(page, HasSubstr("geminid_plan_memory_bytes 20\n"));
  EXPECT_THAT(page, HasSubstr("geminid_plan_memory_limit_bytes 30\n"));
  EXPECT_THAT(page,
              HasSubstr("geminid_limit_refused_total{limit=\"sessions\",tenant=\"uid:7\"} 3\n"));
}

TEST(CallTimes, Calls_AreCountedByMethodAndErrorsByCode) {
  CallTimes times;
  const std::string path = "/geminid.v1.ChunkService/Allocate";
  times.Add(path, core::Duration::Milliseconds(5), absl::StatusCode::kOk);
  times.Add(path, core::Duration::Milliseconds(7), absl::StatusCode::kResourceExhausted);
  Reading reading;
  reading.calls = times.Read();
  const std::string page = PageOf(reading);
  EXPECT_THAT(page, HasSubstr("geminid_rpc_seconds_count{method=\"ChunkService/Allocate\"} 2\n"));
  EXPECT_THAT(page, HasSubstr("geminid_rpc_seconds_sum{method=\"ChunkService/Allocate\"} 0.012"));
  EXPECT_THAT(page, HasSubstr("geminid_rpc_errors_total{method=\"ChunkService/Allocate\",code="
                              "\"RESOURCE_EXHAUSTED\"} 1\n"));
  EXPECT_THAT(page, Not(HasSubstr("code=\"OK\"")));
}

TEST(CallTimes, MoreMethodsThanSeries_AreNotCounted) {
  CallTimes times;
  for (size_t i = 0; i < kMaxMethods + 5; ++i) {
    times.Add(absl::StrCat("/a.B/", i), core::Duration(), absl::StatusCode::kOk);
  }
  EXPECT_EQ(times.Read().size(), kMaxMethods);
}

TEST(Process, Read_IsPlausible) {
  const ProcessReading reading = ReadProcess();
  EXPECT_GT(reading.resident_bytes, uint64_t{1} << 20);
  EXPECT_GE(reading.virtual_bytes, reading.resident_bytes);
  EXPECT_GE(reading.open_fds, 3u);
  EXPECT_GE(reading.threads, 1u);
  EXPECT_GT(reading.start_time_seconds, 1.5e9);
}

TEST(Process, OpenDescriptors_AreCounted) {
  const uint64_t before = *ReadProcess().open_fds;
  std::vector<base::UniqueFd> more;
  for (int i = 0; i < 7; ++i) more.emplace_back(::dup(0));
  EXPECT_EQ(*ReadProcess().open_fds, before + 7);
}

TEST(Process, WhatTheKernelDoesNotSay_IsLeftOut) {
  const std::string page = PageOf(Reading());
  EXPECT_THAT(page, Not(HasSubstr("process_resident_memory_bytes")));
  EXPECT_THAT(page, Not(HasSubstr("process_start_time_seconds")));
}

}  // namespace
}  // namespace geminid::metrics
