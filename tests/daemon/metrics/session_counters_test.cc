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

void Count(SessionCounters* counters, uint64_t session, uint64_t nanoseconds) {
  counters->Update(SessionId{session}, Labels(session), {nanoseconds});
}

uint64_t Sum(const SessionCounters& counters) {
  uint64_t sum = 0;
  for (const SessionCounters::Series& series : counters.Read()) sum += series.stalls[0];
  return sum;
}

TEST(SessionCounters, EndedSession_KeepsItsCount) {
  SessionCounters counters;
  Count(&counters, 1, 17);
  Count(&counters, 2, 27);
  counters.End(SessionId{1});
  ASSERT_EQ(counters.Read().size(), 2u);
  EXPECT_EQ(counters.Read()[0].labels, Labels(1));
  EXPECT_EQ(counters.Read()[0].stalls[0], 17u);
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
  EXPECT_EQ(counters.Read().back().stalls[0], ~uint64_t{0});
}

TEST(SessionCounters, TwoSessionsOfOneName_StayApart) {
  SessionCounters counters;
  Count(&counters, 1, 5);
  Count(&counters, 2, 7);
  const auto series = counters.Read();
  ASSERT_EQ(series.size(), 2u);
  EXPECT_NE(series[0].labels, series[1].labels);
}

TEST(SessionCounters, ManySessions_AreBoundedAndTheFirstToEndMakesRoom) {
  SessionCounters counters;
  for (uint64_t session = 1; session <= kMaxSessionSeries; ++session) Count(&counters, session, 1);
  Count(&counters, 1000, 10);  // no room
  EXPECT_EQ(counters.Read().size(), kMaxSessionSeries + 1);
  EXPECT_EQ(counters.LabelsOf(SessionId{1000}), OtherSessions());
  counters.End(SessionId{5});
  counters.End(SessionId{3});
  Count(&counters, 1001, 100);
  EXPECT_EQ(counters.LabelsOf(SessionId{1001}), Labels(1001));
  EXPECT_EQ(counters.LabelsOf(SessionId{3}), Labels(3));
  EXPECT_EQ(counters.LabelsOf(SessionId{5}), OtherSessions());
  EXPECT_EQ(Sum(counters), kMaxSessionSeries + 110);
}

// Sessions come, count, lie and go in any order; no series falls, and neither does the sum.
TEST(SessionCounters, OverManyLives_NothingEverFalls) {
  std::mt19937 random(1);
  SessionCounters counters;
  std::map<uint64_t, uint64_t> alive;
  std::map<std::string, uint64_t> seen;
  uint64_t newest = 0, sum = 0;
  for (int step = 0; step < 5000; ++step) {
    if (random() % 4 == 0) alive[++newest] = 0;
    for (auto& [session, count] : alive) {
      if (random() % 3 == 0) Count(&counters, session, count += random() % 100);
    }
    if (alive.size() > 80 || (!alive.empty() && random() % 5 == 0)) {
      const auto ending = std::next(alive.begin(), static_cast<long>(random() % alive.size()));
      counters.End(SessionId{ending->first});
      alive.erase(ending);
    }
    for (const SessionCounters::Series& series : counters.Read()) {
      uint64_t& before = seen[series.labels.session];
      ASSERT_GE(series.stalls[0], before) << series.labels.session;
      before = series.stalls[0];
    }
    ASSERT_GE(Sum(counters), sum);
    sum = Sum(counters);
    ASSERT_LE(counters.Read().size(), kMaxSessionSeries + 1);
  }
}

}  // namespace
}  // namespace geminid::metrics
