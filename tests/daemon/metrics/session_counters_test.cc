#include "daemon/metrics/session_counters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "absl/strings/str_cat.h"

namespace geminid::metrics {
namespace {

using shm::SessionId;

SessionLabels Labels(uint64_t session) { return {"uid:1", "demo", "0", absl::StrCat(session)}; }

constexpr uint64_t kForEver = ~uint64_t{0};

void Count(SessionCounters* counters, uint64_t session, uint64_t nanoseconds) {
  counters->Update(SessionId{session}, Labels(session), {.stalls = {nanoseconds}}, kForEver);
}

void CountOf(SessionCounters* counters, const std::string& tenant, uint64_t session) {
  SessionLabels labels = Labels(session);
  labels.tenant = tenant;
  counters->Update(SessionId{session}, labels, {.stalls = {1}}, kForEver);
}

SessionLabels LabelsOf(const SessionCounters& counters, uint64_t session) {
  const SessionCounters::Reading reading = counters.Read();
  const auto found = reading.of_session.find(SessionId{session});
  return found == reading.of_session.end() ? SessionLabels{} : reading.series[found->second].labels;
}

uint64_t Sum(const SessionCounters& counters) {
  uint64_t sum = 0;
  for (const SessionCounters::Series& series : counters.Read().series)
    sum += series.counts.stalls[0];
  return sum;
}

TEST(SessionCounters, EndedSession_KeepsItsCount) {
  SessionCounters counters;
  Count(&counters, 1, 17);
  Count(&counters, 2, 27);
  counters.End(SessionId{1});
  ASSERT_EQ(counters.Read().series.size(), 2u);
  EXPECT_EQ(counters.Read().series[0].labels, Labels(1));
  EXPECT_EQ(counters.Read().series[0].counts.stalls[0], 17u);
  EXPECT_EQ(Sum(counters), 44u);
}

TEST(SessionCounters, ClientThatCountsBackwards_IsNotBelieved) {
  SessionCounters counters;
  Count(&counters, 1, 17);
  Count(&counters, 1, 3);
  EXPECT_EQ(Sum(counters), 17u);
}

TEST(SessionCounters, ClientThatCountsToTheEnd_DoesNotBeginAgain) {
  SessionCounters counters;
  for (uint64_t session = 1; session <= kMaxSessionSeries + 3; ++session) {
    Count(&counters, session, ~uint64_t{0});
  }
  EXPECT_EQ(counters.Read().series.back().counts.stalls[0], ~uint64_t{0});
}

TEST(SessionCounters, StallLongerThanItsClient_IsCut) {
  SessionCounters counters;
  counters.Update(SessionId{1}, Labels(1), {.stalls = {kForEver, 3}, .queued = kForEver}, 100);
  EXPECT_EQ(counters.Read().series[0].counts.stalls[0], 100u);
  EXPECT_EQ(counters.Read().series[0].counts.stalls[1], 3u);
  EXPECT_EQ(counters.Read().series[0].counts.queued, 100u);
}

// The daemon's own count of bytes starts at 0 when another process takes over a kept session.
TEST(SessionCounters, SessionThatAnotherClientTakesOver_GoesOnCounting) {
  SessionCounters counters;
  const SessionCounts first = {.stalls = {5}, .queued = 7, .steps = 2, .transfer_bytes = {100, 10}};
  const SessionCounts second = {.stalls = {3}, .queued = 2, .steps = 1, .transfer_bytes = {40, 0}};
  counters.Update(SessionId{1}, Labels(1), first, kForEver);
  counters.Update(SessionId{1}, Labels(1), second, kForEver);
  const SessionCounts& counts = counters.Read().series[0].counts;
  EXPECT_EQ(counts.stalls[0], 8u);
  EXPECT_EQ(counts.queued, 9u);
  EXPECT_EQ(counts.steps, 3u);
  EXPECT_EQ(counts.transfer_bytes[0], 140u);
  EXPECT_EQ(counts.transfer_bytes[1], 10u);
}

TEST(SessionCounters, TenantWithAllSeries_GivesOneUpForAnother) {
  SessionCounters counters;
  for (uint64_t session = 1; session <= kMaxSessionSeries; ++session) {
    CountOf(&counters, "greedy", session);
  }
  CountOf(&counters, "greedy", 1000);
  EXPECT_EQ(LabelsOf(counters, 1000), OtherSessions()) << "its own stay as they are";
  CountOf(&counters, "late", 1001);
  EXPECT_EQ(LabelsOf(counters, 1001).tenant, "late");
  EXPECT_EQ(LabelsOf(counters, kMaxSessionSeries), OtherSessions()) << "its youngest went";
  EXPECT_EQ(LabelsOf(counters, kMaxSessionSeries - 1).tenant, "greedy");
  EXPECT_EQ(Sum(counters), kMaxSessionSeries + 2);
  EXPECT_EQ(counters.Read().series.size(), kMaxSessionSeries + 1);
}

TEST(SessionCounters, TenantsWithEquallyMany_TakeNothingFromEachOther) {
  SessionCounters counters;
  for (uint64_t session = 1; session <= kMaxSessionSeries; ++session) {
    CountOf(&counters, session % 2 == 0 ? "a" : "b", session);
  }
  CountOf(&counters, "a", 1000);
  EXPECT_EQ(LabelsOf(counters, 1000), OtherSessions());
}

TEST(SessionCounters, TwoSessionsOfOneName_StayApart) {
  SessionCounters counters;
  Count(&counters, 1, 5);
  Count(&counters, 2, 7);
  const auto series = counters.Read().series;
  ASSERT_EQ(series.size(), 2u);
  EXPECT_NE(series[0].labels, series[1].labels);
}

TEST(SessionCounters, ManySessions_AreBoundedAndTheFirstToEndMakesRoom) {
  SessionCounters counters;
  for (uint64_t session = 1; session <= kMaxSessionSeries; ++session) Count(&counters, session, 1);
  Count(&counters, 1000, 10);  // there is no room for more
  EXPECT_EQ(counters.Read().series.size(), kMaxSessionSeries + 1);
  EXPECT_EQ(LabelsOf(counters, 1000), OtherSessions());
  counters.End(SessionId{5});
  counters.End(SessionId{3});
  Count(&counters, 1001, 100);
  EXPECT_EQ(LabelsOf(counters, 1001), Labels(1001));
  EXPECT_EQ(LabelsOf(counters, 3), Labels(3));
  EXPECT_EQ(LabelsOf(counters, 5), SessionLabels{}) << "it counts in other";
  EXPECT_EQ(Sum(counters), kMaxSessionSeries + 110);
}

// Sessions come, count, lie and go in any order. No series falls, and neither does the sum.
TEST(SessionCounters, OverManyLives_NothingEverFalls) {
  std::mt19937 random(1);
  SessionCounters counters;
  std::map<uint64_t, uint64_t> alive;
  std::map<std::string, uint64_t> seen;
  uint64_t newest = 0, sum = 0;
  for (int step = 0; step < 5000; ++step) {
    if (random() % 2 == 0) alive[++newest] = 0;
    for (auto& [session, count] : alive) {
      if (random() % 3 == 0) Count(&counters, session, count += random() % 100);
    }
    if (alive.size() > kMaxSessionSeries + 20 || (!alive.empty() && random() % 9 == 0)) {
      const auto ending = std::next(alive.begin(), static_cast<long>(random() % alive.size()));
      counters.End(SessionId{ending->first});
      alive.erase(ending);
    }
    for (const SessionCounters::Series& series : counters.Read().series) {
      uint64_t& before = seen[series.labels.session];
      ASSERT_GE(series.counts.stalls[0], before) << series.labels.session;
      before = series.counts.stalls[0];
    }
    ASSERT_GE(Sum(counters), sum);
    sum = Sum(counters);
    ASSERT_LE(counters.Read().series.size(), kMaxSessionSeries + 1);
  }
}

}  // namespace
}  // namespace geminid::metrics
