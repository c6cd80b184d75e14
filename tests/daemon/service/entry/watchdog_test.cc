#include "daemon/service/entry/watchdog.h"

#include <gtest/gtest.h>

#include "daemon/service/watch/health.h"

namespace geminid::service {
namespace {

constexpr int64_t kPause = 1'000'000'000;

TEST(Watchdog, ThatNobodySet_NeverNeedsAnything) {
  const Vitals vitals;
  Watchdog watchdog(&vitals, 0);
  EXPECT_FALSE(watchdog.IsToBeFed(5 * kPause));
  EXPECT_EQ(watchdog.NextDeadline(), std::nullopt);
}

TEST(Watchdog, LoopThatTurns_IsReportedOncePerPause) {
  const Vitals vitals;
  Watchdog watchdog(&vitals, kPause);
  EXPECT_TRUE(watchdog.IsToBeFed(5 * kPause));
  EXPECT_EQ(watchdog.NextDeadline(), 6 * kPause);
  EXPECT_FALSE(watchdog.IsToBeFed(6 * kPause - 1));
  EXPECT_TRUE(watchdog.IsToBeFed(6 * kPause));
}

TEST(Watchdog, LoopThatStandsStill_IsNotReported) {
  Vitals vitals;
  Watchdog watchdog(&vitals, kPause);
  const int64_t longest = kLongestTurn.nanoseconds();
  vitals.turn_since_nanoseconds.store(kPause);
  EXPECT_FALSE(watchdog.IsToBeFed(kPause + longest));
  EXPECT_EQ(watchdog.NextDeadline(), 2 * kPause + longest) << "it looks again";
  vitals.turn_since_nanoseconds.store(0);
  EXPECT_TRUE(watchdog.IsToBeFed(2 * kPause + longest));
}

}  // namespace
}  // namespace geminid::service
