#include "training/settings/idle_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tools/trainer/flags/command_line.h"

namespace geminid::trainer {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::StartsWith;

std::vector<std::string> Idle(std::vector<std::string> more, uint64_t samples_per_epoch = 0) {
  more.insert(more.begin(), {"--text", "t", "--model", "gpt2-tiny"});
  const auto line = ParseCommandLine(more);
  EXPECT_TRUE(line.ok()) << line.status();
  return line.ok() ? IdleFlags(*line->options, samples_per_epoch) : std::vector<std::string>();
}

// The program does not warn of its own defaults: 50 steps of warm-up, a validation every 100.
TEST(IdleFlags, OfARunThatIsShorterThanTheDefaults_AreNone) {
  EXPECT_THAT(Idle({"--steps", "5", "--validation", "0.1", "--save", "s"}), IsEmpty());
}

TEST(IdleFlags, OfAWarmUpAsLongAsTheRun_SaysThatTheRateIsNotReached) {
  EXPECT_THAT(Idle({"--steps", "51", "--warmup-steps", "50"}), IsEmpty());
  EXPECT_THAT(Idle({"--steps", "50", "--warmup-steps", "0"}), IsEmpty());
  EXPECT_THAT(Idle({"--steps", "50", "--warmup-steps", "50"}),
              ElementsAre("--warmup-steps 50: the learning rate rises to the last step in a run of "
                          "50 steps and does not reach --lr; give a smaller number"));
}

TEST(IdleFlags, BeyondTheLastStep_AreSaidEach) {
  const std::vector<std::string> run = {"--steps", "10", "--save", "s", "--validation", "0.1"};
  const auto with = [&](const char* every_save, const char* every_validation) {
    std::vector<std::string> words = run;
    words.insert(words.end(), {"--save-every", every_save, "--validation-every", every_validation});
    return Idle(words);
  };
  EXPECT_THAT(with("10", "10"), IsEmpty());
  EXPECT_THAT(with("11", "12"),
              ElementsAre(StartsWith("--save-every 11: it does nothing in a run of 10 steps"),
                          StartsWith("--validation-every 12: it does nothing in a run of 10")));
}

// Steps count from 0, so a milestone equal to the number of steps comes after the last step.
TEST(IdleFlags, OfMilestonesBehindTheEnd_NamesThese) {
  EXPECT_THAT(Idle({"--steps", "10", "--schedule", "multi-step", "--lr-milestones", "3,9,10,20"}),
              ElementsAre("--lr-milestones 10: it does nothing in a run of 10 steps",
                          "--lr-milestones 20: it does nothing in a run of 10 steps"));
}

TEST(IdleFlags, OfPatternsThatFitNoAdapter_NamesThese) {
  EXPECT_THAT(
      Idle({"--lora-rank", "2", "--freeze", "*.wte.*,*.h.0.*lora_A*"}),
      ElementsAre(
          "--freeze *.wte.*: it does nothing, for --lora-rank freezes the same parameters"));
  EXPECT_THAT(Idle({"--freeze", "*.wte.*"}), IsEmpty());
}

TEST(IdleFlags, OfABatchLargerThanAnEpoch_SaysThatSequencesAreRepeated) {
  const std::vector<std::string> run = {"--epochs", "2", "--batch", "8", "--accumulate", "2"};
  EXPECT_THAT(Idle(run, 16), IsEmpty());
  EXPECT_THAT(Idle(run, 15),
              ElementsAre("--batch 8: a step takes 16 sequences and an epoch has 15, "
                          "so each step repeats some"));
}

}  // namespace
}  // namespace geminid::trainer
