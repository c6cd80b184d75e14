#include "collectives/tcp/heartbeat_monitor.h"

#include <gtest/gtest.h>

#include <limits>

namespace geminid::collectives {
namespace {

constexpr HeartbeatMonitor::Time kStart{};

HeartbeatMonitor::Time At(absl::Duration since) {
  return kStart + absl::ToChronoNanoseconds(since);
}
HeartbeatMonitor::Time AtMs(int milliseconds) { return At(absl::Milliseconds(milliseconds)); }

TEST(HeartbeatMonitor, EveryInterval_AreToBeSent) {
  HeartbeatMonitor heartbeats(kDefaultSilence, kStart);
  EXPECT_FALSE(heartbeats.Turn(AtMs(99)));
  EXPECT_TRUE(heartbeats.Turn(AtMs(100)));
  EXPECT_FALSE(heartbeats.Turn(AtMs(150)));
  EXPECT_TRUE(heartbeats.Turn(AtMs(330)));
  EXPECT_FALSE(heartbeats.Turn(AtMs(400)));
}

TEST(HeartbeatMonitor, BetweenTwo_TheWaitIsWhatIsLeft) {
  HeartbeatMonitor heartbeats(kDefaultSilence, kStart);
  EXPECT_EQ(heartbeats.MillisecondsLeft(kStart), 100);
  EXPECT_EQ(heartbeats.MillisecondsLeft(At(absl::Microseconds(30'200))), 70) << "rounded up";
  EXPECT_EQ(heartbeats.MillisecondsLeft(AtMs(5000)), 0);
}

// Runs a loop with turns of this length. Returns the time at which `who` was found silent.
int SilentAt(HeartbeatMonitor& heartbeats, int who, int turn_milliseconds) {
  for (int now = turn_milliseconds; now < 60'000; now += turn_milliseconds) {
    (void)heartbeats.Turn(AtMs(now));
    heartbeats.Heard(7);
    for (const int silent : heartbeats.Silent()) {
      EXPECT_EQ(silent, who);
      return now;
    }
  }
  return std::numeric_limits<int>::max();
}

TEST(HeartbeatMonitor, OfOneThatFellSilent_AreMissedAfterTheLimit) {
  HeartbeatMonitor heartbeats(kDefaultSilence, kStart);
  heartbeats.Heard(3);
  EXPECT_EQ(SilentAt(heartbeats, 3, 100), 1300);
}

TEST(HeartbeatMonitor, OfALoopThatComesLate_CountOnlyWhileItRan) {
  HeartbeatMonitor heartbeats(kDefaultSilence, kStart);
  heartbeats.Heard(3);
  EXPECT_EQ(SilentAt(heartbeats, 3, 200), 1400) << "late by a beat: all of it counts";
  HeartbeatMonitor slow(kDefaultSilence, kStart);
  slow.Heard(3);
  EXPECT_EQ(SilentAt(slow, 3, 400), 2800) << "half of it does";
}

TEST(HeartbeatMonitor, AfterThisProcessStoodStill_NobodyIsDeadWhoWasNotHeardMeanwhile) {
  HeartbeatMonitor heartbeats(kDefaultSilence, kStart);
  heartbeats.Heard(3);
  (void)heartbeats.Turn(AtMs(3'600'000));
  EXPECT_TRUE(heartbeats.Silent().empty());
}

TEST(HeartbeatMonitor, OfWhomIsHeardAgain_AreNotMissed) {
  HeartbeatMonitor heartbeats(kDefaultSilence, kStart);
  heartbeats.Heard(3);
  for (int now = 200; now < 60'000; now += 200) {
    (void)heartbeats.Turn(AtMs(now));
    if (now % 1200 == 0) heartbeats.Heard(3);
    EXPECT_TRUE(heartbeats.Silent().empty()) << now;
  }
}

TEST(HeartbeatMonitor, OfWhomIsForgottenOrWasNeverHeard_AreNotMissed) {
  HeartbeatMonitor heartbeats(kDefaultSilence, kStart);
  heartbeats.Heard(3);
  heartbeats.Forget(3);
  EXPECT_EQ(SilentAt(heartbeats, 3, 100), std::numeric_limits<int>::max());
}

TEST(HeartbeatMonitor, WithoutALimit_AreNeverMissed) {
  HeartbeatMonitor heartbeats(absl::InfiniteDuration(), kStart);
  heartbeats.Heard(3);
  EXPECT_EQ(SilentAt(heartbeats, 3, 100), std::numeric_limits<int>::max());
}

}  // namespace
}  // namespace geminid::collectives
