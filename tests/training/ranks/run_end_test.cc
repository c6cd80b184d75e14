#include "training/ranks/run_end.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <limits>
#include <memory>

#include "client/zero/state/disk_spent.h"
#include "tests/daemon_env/daemon_env.h"

namespace geminid::trainer {
namespace {

constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

RunEnd EndOf(bool stops_on_nan) { return RunEnd(nullptr, nullptr, nullptr, stops_on_nan); }

TEST(RunEnd, OfALossThatIsNotFinite_ComesWhereTheRunStopsForIt) {
  RunEnd stops = EndOf(true), goes_on = EndOf(false);
  for (RunEnd* const end : {&stops, &goes_on}) {
    end->NoteLoss(3);
    EXPECT_FALSE(end->has_come());
    end->NoteLoss(kNotANumber);
  }
  EXPECT_TRUE(stops.how().diverged);
  EXPECT_FALSE(goes_on.has_come());
}

TEST(RunEnd, OfAStepThatADiskHasNoWritesFor_ComesWithoutAnError) {
  RunEnd end = EndOf(false);
  const absl::Status spent = zero::MarkDiskSpent(absl::ResourceExhaustedError("too much"));
  EXPECT_TRUE(end.NoteRefusedStep(spent).ok());
  EXPECT_TRUE(end.how().spent);
}

TEST(RunEnd, OfAStepThatFails_IsItsError) {
  RunEnd end = EndOf(false);
  const absl::Status full = absl::ResourceExhaustedError("the arena is full");
  EXPECT_EQ(end.NoteRefusedStep(full), full);
  EXPECT_FALSE(end.has_come());
}

class SignalledRun : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(env_.Start().ok());
    ConnectOptions connect;
    connect.socket = env_.socket();
    auto session = Session::Connect(connect);
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
  }

  geminid::testing::DaemonEnv env_;
  std::unique_ptr<Session> session_;
  const std::unique_ptr<collectives::Communicator> ranks_ = collectives::MakeSelfCommunicator();
};

TEST_F(SignalledRun, WhoseLossIsNotFiniteThen_EndsByTheSignal) {
  RunEnd end(
      ranks_.get(), session_.get(), [] { return SIGTERM; }, true);
  EXPECT_TRUE(*end.Ask());
  end.NoteLoss(kNotANumber);
  EXPECT_EQ(end.how().signal, SIGTERM);
  EXPECT_FALSE(end.how().diverged);
}

TEST_F(SignalledRun, WhoseDataCannotBeRead_EndsWithTheNextSum) {
  RunEnd end(ranks_.get(), session_.get(), nullptr, false);
  const absl::Status why = absl::InvalidArgumentError("the token shard 'a' became shorter");
  end.NoteNoData(why);
  EXPECT_FALSE(end.has_come());
  EXPECT_TRUE(*end.Ask());
  EXPECT_TRUE(end.how().no_data);
  EXPECT_EQ(end.NoData(), why);
}

TEST_F(SignalledRun, WhoseFirstRankIsAskedForOthers_HearsOfItWithTheNextSum) {
  RunEnd end(ranks_.get(), session_.get(), nullptr, false);
  end.AskForRanks(4);
  EXPECT_EQ(end.asked_ranks(), 0);
  EXPECT_EQ(*end.Add(1.5), 1.5);
  EXPECT_EQ(end.asked_ranks(), 4);
  EXPECT_FALSE(end.has_come());
}

}  // namespace
}  // namespace geminid::trainer
