#include "daemon/agent/supervision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace geminid::agent {
namespace {

using Action = Supervision::Action;
using core::Duration;
using core::Time;
using ::testing::HasSubstr;

constexpr SupervisionOptions kOptions = {.hello_patience = Duration::Seconds(60),
                                         .answer_patience = Duration::Seconds(20),
                                         .health_period = Duration::Seconds(5),
                                         .first_pause = Duration::Milliseconds(100),
                                         .longest_pause = Duration::Seconds(30),
                                         .proven_after = Duration::Seconds(60),
                                         .most_ends = 10};

Time At(double seconds) { return Time::FromNanoseconds(static_cast<int64_t>(seconds * 1e9)); }

// An agent that said hello at second 0.
Supervision Serving() {
  Supervision supervision(kOptions, At(0));
  EXPECT_EQ(supervision.Next(At(0)), Action::kStart);
  supervision.Started(At(0));
  supervision.SaidHello(At(0));
  return supervision;
}

TEST(Supervision, Beginning_StartsAtOnceAndWaitsForTheHello) {
  Supervision supervision(kOptions, At(1));
  EXPECT_EQ(supervision.NextTime(), At(1));
  EXPECT_EQ(supervision.Next(At(1)), Action::kStart);
  supervision.Started(At(1));
  EXPECT_EQ(supervision.state(), AgentState::kStarting);
  EXPECT_EQ(supervision.Next(At(60.9)), Action::kNone);
  EXPECT_EQ(supervision.NextTime(), At(61));
  EXPECT_EQ(supervision.Next(At(61)), Action::kKill);
  EXPECT_EQ(supervision.Next(At(61)), Action::kNone);
  EXPECT_EQ(supervision.state(), AgentState::kEnding);
  EXPECT_THAT(supervision.why(), HasSubstr("sent nothing for 60 s"));
}

TEST(Supervision, IdleAgent_IsAskedForItsHealthOncePerPeriod) {
  Supervision supervision = Serving();
  EXPECT_EQ(supervision.Next(At(4.9)), Action::kNone);
  EXPECT_EQ(supervision.NextTime(), At(5));
  EXPECT_EQ(supervision.Next(At(5)), Action::kAskHealth);
  supervision.Asked(At(5));
  EXPECT_EQ(supervision.Next(At(6)), Action::kNone);
  supervision.Answered(At(6));
  EXPECT_EQ(supervision.NextTime(), At(11));
}

TEST(Supervision, RequestWithoutAnswer_IsAHang) {
  Supervision supervision = Serving();
  supervision.Asked(At(1));
  supervision.Asked(At(15));  // waits behind the first request
  EXPECT_EQ(supervision.NextTime(), At(21));
  supervision.Answered(At(20));
  EXPECT_EQ(supervision.Next(At(39)), Action::kNone);
  EXPECT_EQ(supervision.Next(At(40)), Action::kKill);
  EXPECT_THAT(supervision.why(), HasSubstr("did not answer for 20 s"));
}

TEST(Supervision, AgentThatCannotBeEnded_IsNotStartedASecondTime) {
  Supervision supervision = Serving();
  supervision.Asked(At(1));
  EXPECT_EQ(supervision.Next(At(21)), Action::kKill);
  EXPECT_EQ(supervision.NextTime(), std::nullopt);
  EXPECT_EQ(supervision.Next(At(1e6)), Action::kNone);
  supervision.Retry(At(1e6));
  EXPECT_EQ(supervision.Next(At(1e6)), Action::kNone);
  supervision.Ended(At(1e6), "signal 9");
  EXPECT_THAT(supervision.why(), HasSubstr("did not answer"));  // not the status of the kill
  EXPECT_EQ(supervision.state(), AgentState::kWaiting);
}

TEST(Supervision, Ends_AreFollowedByLongerPausesAndThenItIsGivenUp) {
  Supervision supervision(kOptions, At(0));
  Time now = At(0);
  for (const int64_t pause : {100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600}) {
    ASSERT_EQ(supervision.Next(now), Action::kStart);
    supervision.Started(now);
    supervision.Ended(now, "exit code 1");
    EXPECT_EQ(supervision.NextTime(), now + Duration::Milliseconds(pause));
    now = *supervision.NextTime();
  }
  ASSERT_EQ(supervision.Next(now), Action::kStart);
  supervision.StartFailed(now, "no such file");
  EXPECT_EQ(supervision.state(), AgentState::kGivenUp);
  EXPECT_EQ(supervision.NextTime(), std::nullopt);
  EXPECT_EQ(supervision.starts(), 10u);
  EXPECT_EQ(supervision.why(), "no such file");
}

TEST(Supervision, Pauses_HaveALongest) {
  SupervisionOptions options = kOptions;
  options.most_ends = 1000;
  Supervision supervision(options, At(0));
  for (int i = 0; i < 100; ++i) supervision.StartFailed(At(0), "");
  EXPECT_EQ(supervision.NextTime(), At(30));
}

TEST(Supervision, Retry_StartsOneThatWasGivenUp) {
  Supervision supervision(kOptions, At(0));
  for (int i = 0; i < 10; ++i) supervision.StartFailed(At(0), "no driver");
  ASSERT_EQ(supervision.state(), AgentState::kGivenUp);
  supervision.Retry(At(7));
  EXPECT_EQ(supervision.Next(At(7)), Action::kStart);
  supervision.StartFailed(At(7), "no driver");
  EXPECT_EQ(supervision.NextTime(), At(7.1));
}

TEST(Supervision, OneThatServedLong_IsStartedAgainAfterTheFirstPause) {
  Supervision supervision = Serving();
  for (double end = 0; end < 3; ++end) {  // from the second end on, too
    supervision.Ended(At(60 + 100 * end), "signal 11");
    EXPECT_EQ(supervision.NextTime(), At(60.1 + 100 * end));
    supervision.Started(At(100 + 100 * end));
    supervision.SaidHello(At(100 + 100 * end));
  }
  supervision.Ended(At(301), "signal 11");
  EXPECT_EQ(supervision.NextTime(), At(301.2));
}

TEST(Supervision, AgentThatBreaksTheProtocol_IsKilled) {
  Supervision twice = Serving();
  twice.SaidHello(At(1));
  EXPECT_EQ(twice.Next(At(1)), Action::kKill);
  Supervision unasked = Serving();
  unasked.Answered(At(1));
  EXPECT_EQ(unasked.Next(At(1)), Action::kKill);
  Supervision said = Serving();
  said.Broke(At(1), "the GPU is lost");
  EXPECT_EQ(said.Next(At(1)), Action::kKill);
  EXPECT_EQ(said.why(), "the GPU is lost");
  said.Ended(At(1), "exit code 1");
  EXPECT_EQ(said.why(), "the GPU is lost");
  Supervision hung_up = Serving();
  hung_up.Broke(At(1), "");
  hung_up.Ended(At(1), "signal 11");
  EXPECT_EQ(hung_up.why(), "signal 11");
}

// An agent that acts at random. Whatever it does, the contracts of the header hold.
TEST(Supervision, RandomAgents_AreNeverTwoAndNeverWaitedForInVain) {
  std::mt19937_64 random(7);
  const auto roll = [&](uint64_t sides) { return random() % sides; };
  for (int run = 0; run < 2000; ++run) {
    Time now = At(0);
    Supervision supervision(kOptions, now);
    bool alive = false;
    bool killed = false;
    uint32_t asked = 0;
    for (int step = 0; step < 200; ++step) {
      const Action action = supervision.Next(now);
      switch (action) {
        case Action::kStart:
          ASSERT_FALSE(alive);
          alive = roll(4) != 0;
          killed = false;
          asked = 0;
          alive ? supervision.Started(now) : supervision.StartFailed(now, "no");
          continue;
        case Action::kKill:
          ASSERT_TRUE(alive);
          ASSERT_FALSE(killed);
          killed = true;
          continue;
        case Action::kAskHealth:
          ASSERT_TRUE(alive);
          ASSERT_EQ(asked, 0u);
          supervision.Asked(now);
          ++asked;
          continue;
        case Action::kNone:
          break;
      }
      // Every wait has an end time, except for the end of an agent and after it was given up.
      if (supervision.state() != AgentState::kEnding &&
          supervision.state() != AgentState::kGivenUp) {
        ASSERT_TRUE(supervision.NextTime().has_value());
        ASSERT_GT(*supervision.NextTime(), now);
      }
      const uint64_t what = roll(6);
      if (what == 0 && alive) {
        supervision.Ended(now, "end");
        alive = false;
      } else if (what == 1 && alive && supervision.state() == AgentState::kStarting) {
        supervision.SaidHello(now);
      } else if (what == 2 && asked > 0 && supervision.serving()) {
        supervision.Answered(now);
        --asked;
      } else if (what == 3 && supervision.serving()) {
        supervision.Asked(now);
        ++asked;
      } else if (what == 4 && supervision.state() == AgentState::kGivenUp) {
        supervision.Retry(now);
      } else if (supervision.NextTime().has_value()) {
        now = roll(2) == 0 ? *supervision.NextTime() : now + Duration::Milliseconds(100);
      } else if (alive && killed) {
        supervision.Ended(now, "killed");
        alive = false;
      }
    }
  }
}

}  // namespace
}  // namespace geminid::agent
