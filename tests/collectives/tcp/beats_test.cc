#include "collectives/tcp/beats.h"

#include <gtest/gtest.h>

#include <limits>

namespace geminid::collectives {
namespace {

constexpr Beats::Time kStart{};

Beats::Time At(absl::Duration since) { return kStart + absl::ToChronoNanoseconds(since); }
Beats::Time AtMs(int milliseconds) { return At(absl::Milliseconds(milliseconds)); }

TEST(Beats, EveryInterval_AreToBeSent) {
  Beats beats(kDefaultSilence, kStart);
  EXPECT_FALSE(beats.Turn(AtMs(99)));
  EXPECT_TRUE(beats.Turn(AtMs(100)));
  EXPECT_FALSE(beats.Turn(AtMs(150)));
  EXPECT_TRUE(beats.Turn(AtMs(330)));
  EXPECT_FALSE(beats.Turn(AtMs(400)));
}

TEST(Beats, BetweenTwo_TheWaitIsWhatIsLeft) {
  Beats beats(kDefaultSilence, kStart);
  EXPECT_EQ(beats.MillisecondsLeft(kStart), 100);
  EXPECT_EQ(beats.MillisecondsLeft(At(absl::Microseconds(30'200))), 70) << "rounded up";
  EXPECT_EQ(beats.MillisecondsLeft(AtMs(5000)), 0);
}

// Runs a loop with turns of this length. Returns the time at which `who` was found silent.
int SilentAt(Beats& beats, int who, int turn_milliseconds) {
  for (int now = turn_milliseconds; now < 60'000; now += turn_milliseconds) {
    (void)beats.Turn(AtMs(now));
    beats.Heard(7);
    for (const int silent : beats.Silent()) {
      EXPECT_EQ(silent, who);
      return now;
    }
  }
  return std::numeric_limits<int>::max();
}

TEST(Beats, OfOneThatFellSilent_AreMissedAfterTheLimit) {
  Beats beats(kDefaultSilence, kStart);
  beats.Heard(3);
  EXPECT_EQ(SilentAt(beats, 3, 100), 1300);
}

TEST(Beats, OfALoopThatComesLate_CountOnlyWhileItRan) {
  Beats beats(kDefaultSilence, kStart);
  beats.Heard(3);
  EXPECT_EQ(SilentAt(beats, 3, 200), 1400) << "late by a beat: all of it counts";
  Beats slow(kDefaultSilence, kStart);
  slow.Heard(3);
  EXPECT_EQ(SilentAt(slow, 3, 400), 2800) << "half of it does";
}

TEST(Beats, AfterThisProcessStoodStill_NobodyIsDeadWhoWasNotHeardMeanwhile) {
  Beats beats(kDefaultSilence, kStart);
  beats.Heard(3);
  (void)beats.Turn(AtMs(3'600'000));
  EXPECT_TRUE(beats.Silent().empty());
}

TEST(Beats, OfWhomIsHeardAgain_AreNotMissed) {
  Beats beats(kDefaultSilence, kStart);
  beats.Heard(3);
  for (int now = 200; now < 60'000; now += 200) {
    (void)beats.Turn(AtMs(now));
    if (now % 1200 == 0) beats.Heard(3);
    EXPECT_TRUE(beats.Silent().empty()) << now;
  }
}

TEST(Beats, OfWhomIsForgottenOrWasNeverHeard_AreNotMissed) {
  Beats beats(kDefaultSilence, kStart);
  beats.Heard(3);
  beats.Forget(3);
  EXPECT_EQ(SilentAt(beats, 3, 100), std::numeric_limits<int>::max());
}

TEST(Beats, WithoutALimit_AreNeverMissed) {
  Beats beats(absl::InfiniteDuration(), kStart);
  beats.Heard(3);
  EXPECT_EQ(SilentAt(beats, 3, 100), std::numeric_limits<int>::max());
}

}  // namespace
}  // namespace geminid::collectives
