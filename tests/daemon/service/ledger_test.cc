// The metrics page: it parses, and its ledger adds up.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "daemon/os/event.h"
#include "daemon/service/entry/daemon.h"
#include "daemon/service/watch/monitor.h"
#include "geminid/v1/chunk.grpc.pb.h"
#include "geminid/v1/session.grpc.pb.h"
#include "tests/daemon_env/daemon_env.h"
#include "tests/daemon_env/raw_client.h"

namespace geminid::service {
namespace {

using ::geminid::testing::DaemonEnv;
using ::geminid::testing::RawClient;

// The series of a page in the text format, version 0.0.4, by name with labels. A line of another
// format fails the test.
std::map<std::string, double> ParsePage(const std::string& page) {
  std::map<std::string, double> series;
  for (const auto& line_view : absl::StrSplit(page, '\n', absl::SkipEmpty())) {
    const std::string line(line_view);
    if (line[0] == '#') {
      EXPECT_TRUE(line.rfind("# HELP ", 0) == 0 || line.rfind("# TYPE ", 0) == 0) << line;
      continue;
    }
    const size_t space = line.rfind(' ');
    double value = 0;
    if (space == std::string::npos || !absl::SimpleAtod(line.substr(space + 1), &value)) {
      ADD_FAILURE() << line;
      continue;
    }
    EXPECT_TRUE(series.emplace(line.substr(0, space), value).second) << "twice: " << line;
  }
  return series;
}

TEST(MetricsPage, WithMemoryInUse_AddsUp) {
  DaemonEnv env;
  ASSERT_TRUE(env.Start().ok());
  absl::StatusOr<std::unique_ptr<RawClient>> client = RawClient::Attach(env.socket());
  ASSERT_TRUE(client.ok());
  v1::CreateArenaRequest arena;
  arena.set_bytes(1 << 20);
  v1::CreateArenaResponse arena_response;
  grpc::ClientContext arena_context;
  (*client)->Authenticate(&arena_context);
  ASSERT_TRUE(v1::SessionService::NewStub((*client)->channel())
                  ->CreateArena(&arena_context, arena, &arena_response)
                  .ok());
  v1::AllocateChunksRequest request;
  for (const v1::ChunkKind kind : {v1::CHUNK_KIND_WEIGHT, v1::CHUNK_KIND_EXP_AVG}) {
    v1::ChunkSpec* chunk = request.add_chunks();
    chunk->set_kind(kind);
    chunk->set_bytes(100001);
    chunk->set_has_home(true);
  }
  v1::AllocateChunksResponse response;
  grpc::ClientContext context;
  (*client)->Authenticate(&context);
  ASSERT_TRUE(
      v1::ChunkService::NewStub((*client)->channel())->Allocate(&context, request, &response).ok());
  (*client)->client()->counters.stall_nanoseconds[1].store(2'500);

  std::map<std::string, double> series = ParsePage(env.MetricsPage());
  for (const std::string tier : {"tier=\"device\",device=\"0\"", "tier=\"host\""}) {
    const std::string labels = "{" + tier + ",state=\"";
    EXPECT_EQ(series["geminid_tier_bytes" + labels + "in_use\"}"] +
                  series["geminid_tier_bytes" + labels + "reserved\"}"] +
                  series["geminid_tier_bytes" + labels + "free\"}"],
              series["geminid_tier_capacity_bytes{" + tier + "}"])
        << tier;
  }
  EXPECT_FALSE(series.contains("geminid_tier_capacity_bytes{tier=\"disk\"}"))
      << "a tier that is not there is no empty tier";
  EXPECT_EQ(series["geminid_in_use_bytes{tier=\"host\",kind=\"weight\"}"], 100001);
  EXPECT_EQ(series["geminid_in_use_bytes{tier=\"host\",kind=\"exp_avg\"}"], 100001);
  EXPECT_EQ(series["geminid_tier_bytes{tier=\"device\",device=\"0\",state=\"reserved\"}"], 1 << 20);
  EXPECT_EQ(series["geminid_sessions{state=\"attached\"}"], 1);
  const std::string rank =
      absl::StrCat("{tenant=\"", env.daemon().hub().AllSessions()[0]->spec().tenant,
                   "\",job_name=\"demo\",rank=\"0\",session=\"1\"");
  EXPECT_DOUBLE_EQ(series["geminid_client_stall_seconds_total" + rank + ",cause=\"gather\"}"],
                   2.5e-6);
  EXPECT_EQ(series["geminid_session_bytes" + rank + ",tier=\"device\",device=\"0\"}"], 1 << 20);
  EXPECT_EQ(series["geminid_session_in_use_bytes" + rank + ",tier=\"host\",kind=\"weight\"}"],
            100001);
  EXPECT_FALSE(series.contains("geminid_plan_transfer_bytes" + rank + "}")) << "it has no plan";
  EXPECT_EQ(series["geminid_allocation_seconds_count{tier=\"host\"}"], 1);
  EXPECT_EQ(series["geminid_rpc_seconds_count{method=\"ChunkService/Allocate\"}"], 1);
  EXPECT_EQ(series["geminid_phase{phase=\"serving\"}"], 1);
  EXPECT_EQ(series["geminid_epoch"], 1);
  EXPECT_EQ(series["geminid_invariant_violations_total"], 0);
  EXPECT_GT(series["process_resident_memory_bytes"], 0);
}

// The counters of a page, by series and summed by family.
std::map<std::string, double> CountersOf(const std::string& page) {
  std::map<std::string, double> counters;
  for (const auto& [name, value] : ParsePage(page)) {
    const std::string family = name.substr(0, name.find('{'));
    if (!absl::EndsWith(family, "_total")) continue;
    counters[name] = value;
    counters["all of " + family] += value;
  }
  return counters;
}

TEST(MetricsPage, OverTheLivesOfJobs_NoCounterFalls) {
  DaemonEnv env;
  ASSERT_TRUE(env.Start().ok());
  std::map<std::string, double> before;
  const auto scrape = [&] {
    const std::map<std::string, double> now = CountersOf(env.MetricsPage());
    for (const auto& [name, value] : before) {
      const auto found = now.find(name);
      ASSERT_NE(found, now.end()) << name << " is gone";
      ASSERT_GE(found->second, value) << name;
    }
    before = now;
  };
  const auto attached_are = [&](size_t count) {
    const auto deadline = absl::Now() + absl::Seconds(30);
    while (env.daemon().hub().AttachedSessions() != count && absl::Now() < deadline) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    return env.daemon().hub().AttachedSessions() == count;
  };
  for (int life = 0; life < 3; ++life) {
    // Two jobs of one name. The job that waited longer ends first.
    absl::StatusOr<std::unique_ptr<RawClient>> first = RawClient::Attach(env.socket());
    absl::StatusOr<std::unique_ptr<RawClient>> second = RawClient::Attach(env.socket());
    ASSERT_TRUE(first.ok() && second.ok());
    (*first)->client()->counters.stall_nanoseconds[1].store(44'200);
    (*second)->client()->counters.stall_nanoseconds[1].store(27'200);
    ASSERT_NO_FATAL_FAILURE(scrape());
    first->reset();
    ASSERT_TRUE(attached_are(1));
    ASSERT_NO_FATAL_FAILURE(scrape());
    second->reset();
    ASSERT_TRUE(attached_are(0));
    ASSERT_NO_FATAL_FAILURE(scrape());
    EXPECT_NEAR(before["all of geminid_client_stall_seconds_total"], 71.4e-6 * (life + 1), 1e-12);
  }
}

TEST(MetricsPage, StallLongerThanItsSession_IsNotBelieved) {
  DaemonEnv env;
  ASSERT_TRUE(env.Start().ok());
  const absl::Time before = absl::Now();
  absl::StatusOr<std::unique_ptr<RawClient>> client = RawClient::Attach(env.socket());
  ASSERT_TRUE(client.ok());
  (*client)->client()->counters.stall_nanoseconds[1].store(~uint64_t{0});
  const double stalled = CountersOf(env.MetricsPage())["all of geminid_client_stall_seconds_total"];
  EXPECT_GT(stalled, 0);
  EXPECT_LE(stalled, absl::ToDoubleSeconds(absl::Now() - before));
}

// Prometheus adds the labels `job` and `instance` itself, and would rename ours.
TEST(MetricsPage, LabelsOfPrometheus_AreNotOurs) {
  DaemonEnv env;
  ASSERT_TRUE(env.Start().ok());
  const auto client = RawClient::Attach(env.socket());
  ASSERT_TRUE(client.ok());
  const std::string page = env.MetricsPage();
  for (const char* label : {"{job=", ",job=", "{instance=", ",instance="}) {
    EXPECT_THAT(page, ::testing::Not(::testing::HasSubstr(label)));
  }
}

TEST(MetricsPage, Scrapes_AreNoChecksAndNoViolations) {
  DaemonEnv env;
  ASSERT_TRUE(env.Start().ok());
  Monitor monitor(&env.daemon().hub(), &env.daemon().vitals(), "1");
  for (int i = 0; i < 3; ++i) (void)monitor.Handle("/metrics");
  std::map<std::string, double> series = ParsePage(monitor.Handle("/metrics").body);
  EXPECT_EQ(series.at("geminid_invariant_checks_total"), 0);
  const int64_t now = os::MonotonicNanoseconds();
  monitor.CheckIfDue(now);
  monitor.CheckIfDue(now + 1);
  series = ParsePage(monitor.Handle("/metrics").body);
  EXPECT_EQ(series.at("geminid_invariant_checks_total"), 1) << "the second was not due";
  EXPECT_EQ(series.at("geminid_invariant_violations_total"), 0);
}

TEST(MetricsPage, OtherPaths_AreNotFound) {
  DaemonEnv env;
  ASSERT_TRUE(env.Start().ok());
  Monitor monitor(&env.daemon().hub(), &env.daemon().vitals(), "1");
  EXPECT_EQ(monitor.Handle("/healthz").code, 200);
  EXPECT_EQ(monitor.Handle("/livez").code, 200);
  EXPECT_EQ(monitor.Handle("/").code, 200);  // the list of pages
  EXPECT_EQ(monitor.Handle("/metrics/").code, 404);
}

TEST(Probes, DaemonThatIsDrained_IsNotReady) {
  DaemonEnv env;
  ASSERT_TRUE(env.Start().ok());
  Monitor monitor(&env.daemon().hub(), &env.daemon().vitals(), "1");
  // The daemon is ready once its thread has begun.
  const auto deadline = absl::Now() + absl::Seconds(30);
  while (monitor.Handle("/readyz").code != 200 && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_EQ(monitor.Handle("/readyz").body, "ok\n");
  env.daemon().hub().Drain(true);
  EXPECT_EQ(monitor.Handle("/readyz").code, 503);
  EXPECT_THAT(monitor.Handle("/readyz").body, ::testing::HasSubstr("geminictl drain --undo"));
  EXPECT_EQ(monitor.Handle("/healthz").code, 200) << "its jobs go on";
  EXPECT_THAT(monitor.Handle("/metrics").body,
              ::testing::HasSubstr("geminid_phase{phase=\"drained\"} 1\n"));
}

// A daemon whose loop has hung for a minute.
TEST(Probes, LoopThatStandsStill_IsNotAlive) {
  DaemonEnv env;
  ASSERT_TRUE(env.Start().ok());
  Vitals vitals;
  vitals.serving.store(true);
  Monitor monitor(&env.daemon().hub(), &vitals, "1");
  EXPECT_EQ(monitor.Handle("/livez").code, 200);
  const int64_t since = os::MonotonicNanoseconds() - 60'000'000'000;
  vitals.turn_since_nanoseconds.store(since);
  for (const char* probe : {"/livez", "/readyz", "/healthz"}) {
    const metrics::HttpResponse answer = monitor.Handle(probe);
    EXPECT_EQ(answer.code, 503) << probe;
    const std::string words = "the event loop has stood still for ";
    ASSERT_THAT(answer.body, ::testing::HasSubstr(words));
    const int seconds = std::atoi(answer.body.c_str() + answer.body.find(words) + words.size());
    const int most = static_cast<int>((os::MonotonicNanoseconds() - since) / 1'000'000'000) + 1;
    EXPECT_TRUE(seconds >= 60 && seconds <= most) << answer.body;
  }
}

TEST(Probes, EntranceThatStandsStill_IsNotAliveEither) {
  DaemonEnv env;
  ASSERT_TRUE(env.Start().ok());
  Vitals vitals;
  vitals.serving.store(true);
  Monitor monitor(&env.daemon().hub(), &vitals, "1");
  const int64_t now = os::MonotonicNanoseconds();
  vitals.turn_since_nanoseconds.store(now);
  vitals.entrance_turn_since_nanoseconds.store(now - 60'000'000'000);
  EXPECT_EQ(monitor.Handle("/livez").code, 503);
}

}  // namespace
}  // namespace geminid::service
