#include "training/launch/outcome_teller.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

namespace geminid::trainer {
namespace {

using testing::ElementsAre;

TEST(OutcomeTeller, Outcomes_AreAllToldInOrderBeforeItEnds) {
  std::vector<std::string> told;
  {
    OutcomeTeller teller([&](const MoveOutcome& outcome) {
      told.push_back(absl::StrCat(outcome.request, " ", outcome.state));
      return absl::OkStatus();
    });
    teller.Tell({.request = 7, .state = "taken"});
    teller.Tell({.request = 7, .state = "done"});
    teller.Tell({.request = 8, .state = "taken"});
    EXPECT_FALSE(teller.job_ended());
  }
  EXPECT_THAT(told, ElementsAre("7 taken", "7 done", "8 taken"));
}

// A daemon that hangs must not make a queue of the same words.
TEST(OutcomeTeller, OutcomeThatWaitsAlready_IsToldOnce) {
  std::mutex hangs;
  hangs.lock();
  int told = 0;
  {
    OutcomeTeller teller([&](const MoveOutcome&) {
      const std::lock_guard lock(hangs);
      ++told;
      return absl::OkStatus();
    });
    teller.Tell({.request = 7, .state = "done"});  // whatever the thread has taken of these
    for (int i = 0; i < 100; ++i) teller.Tell({.request = 7, .state = "taken"});
    hangs.unlock();
  }
  EXPECT_LE(told, 3);
}

// Under load a daemon may miss several deadlines. The person who asked waits for the outcome.
TEST(OutcomeTeller, FinalOutcome_IsToldUntilTheDaemonAnswers) {
  constexpr int kMissed = 2 * OutcomeTeller::kTries;
  std::promise<int> told;
  int calls = 0;
  OutcomeTeller teller([&](const MoveOutcome&) {
    if (++calls <= kMissed) return absl::DeadlineExceededError("it is busy");
    told.set_value(calls);
    return absl::OkStatus();
  });
  teller.Tell({.request = 7, .state = "done"});
  EXPECT_EQ(told.get_future().get(), kMissed + 1);
}

TEST(OutcomeTeller, FinalOutcomeWithoutADaemon_DoesNotHoldUpTheEnd) {
  int calls = 0;
  {
    OutcomeTeller teller([&](const MoveOutcome&) {
      ++calls;
      return absl::UnavailableError("there is no daemon");
    });
    teller.Tell({.request = 7, .state = "done"});
  }
  EXPECT_GE(calls, OutcomeTeller::kTries);
}

TEST(OutcomeTeller, DaemonThatSaysTheJobWasEnded_IsHeard) {
  std::promise<void> called;
  OutcomeTeller teller([&](const MoveOutcome&) {
    called.set_value();
    return absl::AbortedError("the job was ended on request");
  });
  teller.Tell({.request = 7, .state = "taken"});
  called.get_future().wait();
  while (!teller.job_ended()) std::this_thread::yield();
}

TEST(OutcomeTeller, DaemonThatDoesNotAnswer_IsToldAgainAndGivenUp) {
  int calls = 0;
  {
    OutcomeTeller teller([&](const MoveOutcome& outcome) {
      ++calls;
      return outcome.request == 7 ? absl::UnavailableError("it hangs")
                                  : absl::NotFoundError("nobody waits");
    });
    teller.Tell({.request = 7, .state = "taken"});
    teller.Tell({.request = 8, .state = "done"});  // NOT_FOUND is an answer: no retry
  }
  EXPECT_EQ(calls, OutcomeTeller::kTries + 1);
}

TEST(OutcomeTeller, WithoutOutcomes_EndsAtOnce) {
  OutcomeTeller teller([](const MoveOutcome&) { return absl::OkStatus(); });
}

}  // namespace
}  // namespace geminid::trainer
