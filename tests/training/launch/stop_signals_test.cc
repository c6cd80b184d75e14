#include "training/launch/stop_signals.h"

#include <gtest/gtest.h>
#include <signal.h>

namespace geminid::trainer {
namespace {

TEST(StopPolicy, GivenOneSignal_AsksToStop) {
  StopPolicy policy;
  EXPECT_EQ(policy.first(), 0);
  EXPECT_EQ(policy.OnSignal(SIGTERM, absl::UnixEpoch()), StopAction::kAskToStop);
  EXPECT_EQ(policy.first(), SIGTERM);
}

TEST(StopPolicy, GivenTheSameWishAgainAtOnce_TakesItForOne) {
  StopPolicy policy;
  const absl::Time start = absl::UnixEpoch();
  policy.OnSignal(SIGINT, start);
  EXPECT_EQ(policy.OnSignal(SIGINT, start), StopAction::kNone);
  EXPECT_EQ(policy.OnSignal(SIGTERM, start + StopPolicy::kSameWish - absl::Milliseconds(1)),
            StopAction::kNone);
}

TEST(StopPolicy, GivenASecondSignalLater_EndsAtOnce) {
  StopPolicy policy;
  const absl::Time start = absl::UnixEpoch();
  policy.OnSignal(SIGINT, start);
  EXPECT_EQ(policy.OnSignal(SIGTERM, start + StopPolicy::kSameWish), StopAction::kEndAtOnce);
  EXPECT_EQ(policy.first(), SIGINT);
}

// Slurm warns with --signal=USR1@90, and sends SIGTERM at the time limit. A save that is running
// then must still finish.
TEST(StopPolicy, GivenAWarning_AsksToStopAndCountsForNoWish) {
  for (const int warning : {SIGUSR1, SIGUSR2, SIGXCPU}) {
    StopPolicy policy;
    const absl::Time start = absl::UnixEpoch();
    EXPECT_EQ(policy.OnSignal(warning, start), StopAction::kAskToStop);
    EXPECT_EQ(policy.first(), warning);
    EXPECT_EQ(policy.OnSignal(warning, start + absl::Seconds(1)), StopAction::kNone);
    EXPECT_EQ(policy.OnSignal(SIGTERM, start + absl::Seconds(90)), StopAction::kNone);
    EXPECT_EQ(policy.OnSignal(SIGTERM, start + absl::Seconds(91)), StopAction::kEndAtOnce);
    EXPECT_EQ(policy.first(), warning);
  }
}

TEST(StopPolicy, GivenAWarningAfterAWish_GoesOnEnding) {
  StopPolicy policy;
  const absl::Time start = absl::UnixEpoch();
  EXPECT_EQ(policy.OnSignal(SIGTERM, start), StopAction::kAskToStop);
  EXPECT_EQ(policy.OnSignal(SIGUSR1, start + absl::Seconds(9)), StopAction::kNone);
}

// nohup(1) ignores SIGHUP.
TEST(WatchedSignals, WhereSighupIsIgnored_AreTheOthers) {
  const auto before = ::signal(SIGHUP, SIG_IGN);
  const sigset_t ignored = WatchedSignals();
  ::signal(SIGHUP, SIG_DFL);
  const sigset_t all = WatchedSignals();
  ::signal(SIGHUP, before);
  for (const int signal : kStopSignals) {
    EXPECT_EQ(sigismember(&all, signal), 1) << signal;
    EXPECT_EQ(sigismember(&ignored, signal), signal == SIGHUP ? 0 : 1) << signal;
  }
}

TEST(SignalName, IsTheUsualOne) {
  EXPECT_EQ(SignalName(SIGINT), "SIGINT");
  EXPECT_EQ(SignalName(SIGHUP), "SIGHUP");
}

}  // namespace
}  // namespace geminid::trainer
