#include "tools/trainer/stop_signals.h"

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

TEST(SignalName, IsTheUsualOne) {
  EXPECT_EQ(SignalName(SIGINT), "SIGINT");
  EXPECT_EQ(SignalName(SIGHUP), "SIGHUP");
}

}  // namespace
}  // namespace geminid::trainer
