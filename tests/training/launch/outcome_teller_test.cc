#include "training/launch/outcome_teller.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace geminid::trainer {
namespace {

using testing::ElementsAre;

TEST(OutcomeTeller, Outcomes_AreAllToldInOrderBeforeItEnds) {
  std::vector<std::string> told;
  {
    OutcomeTeller teller([&](const MoveOutcome& outcome) {
      told.push_back(outcome.state);
      return absl::OkStatus();
    });
    for (const char* const state : {"taken", "taken", "done"}) {
      teller.Tell({.request = 7, .state = state});
    }
  }
  EXPECT_THAT(told, ElementsAre("taken", "taken", "done"));
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
