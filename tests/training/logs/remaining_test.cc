#include "training/logs/remaining.h"

#include <gtest/gtest.h>

namespace geminid::trainer {
namespace {

TEST(RemainingSeconds, StepsAlone_AreWhatIsLeftOfThem) {
  EXPECT_EQ(RemainingSeconds({.done = 3, .steps = 10, .step_seconds = 2}), 14);
  EXPECT_EQ(RemainingSeconds({.done = 10, .steps = 10, .step_seconds = 2}), 0);
}

// Validations come after steps 8, 12 and 14, the last step.
TEST(RemainingSeconds, WithValidation_AddsThoseThatAreLeft) {
  const Pace pace = {.done = 4,
                     .steps = 14,
                     .step_seconds = 1,
                     .validation_every = 4,
                     .validation_seconds = 100};
  EXPECT_EQ(RemainingSeconds(pace), 10 + 300);
}

TEST(RemainingSeconds, WhereTheLastStepIsDue_CountsItOnce) {
  const Pace pace = {.done = 4,
                     .steps = 12,
                     .step_seconds = 1,
                     .validation_every = 4,
                     .validation_seconds = 100};
  EXPECT_EQ(RemainingSeconds(pace), 8 + 200);
}

// Saves come after steps 5 and 8. The run ends when the last save is on disk.
TEST(RemainingSeconds, WithSaves_AddsTheirWaitsAndTheLastOne) {
  Pace pace = {.done = 2,
               .steps = 8,
               .step_seconds = 1,
               .saves = true,
               .save_every = 5,
               .save_seconds = 10,
               .last_save_seconds = 50};
  EXPECT_EQ(RemainingSeconds(pace), 6 + 20 + 50);
  pace.save_every = 0;  // only after the last step
  EXPECT_EQ(RemainingSeconds(pace), 6 + 10 + 50);
  pace.done = 8;
  EXPECT_EQ(RemainingSeconds(pace), 50);
  pace.saves = false;
  EXPECT_EQ(RemainingSeconds(pace), 0);
}

}  // namespace
}  // namespace geminid::trainer
