#include "tools/trainer/flags/run_length.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tools/trainer/flags/command_line.h"
#include "training/data/text.h"

namespace geminid::trainer {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

using Words = std::vector<std::string>;

absl::StatusOr<CommandLine> Parse(const Words& more) {
  Words arguments = {"--text", "t", "--model", "gpt2-tiny", "--context", "16"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return ParseCommandLine(arguments);
}

std::string Refusal(const Words& more) { return std::string(Parse(more).status().message()); }

TrainOptions OnText(const Words& more, size_t bytes) {
  const auto line = Parse(more);
  EXPECT_TRUE(line.ok()) << line.status();
  const Text text(std::vector<uint8_t>(bytes, 'x'));
  const auto options = WithStepsOf(*line->options, text);
  EXPECT_TRUE(options.ok()) << options.status();
  return *options;
}

TEST(RunLength, OfEpochs_IsTheStepsThatTheyTakeOnTheData) {
  EXPECT_EQ(OnText({"--epochs", "1"}, 16 * 10 + 1).schedule.steps, 3) << "10 sequences by 4";
  EXPECT_EQ(OnText({"--epochs", "2"}, 16 * 10 + 1).schedule.steps, 5);
  EXPECT_EQ(OnText({"--epochs", "2", "--accumulate", "2"}, 16 * 10 + 16).schedule.steps, 3);
  // Held-out data is not trained on, so 8 sequences are left.
  EXPECT_EQ(OnText({"--epochs", "1", "--validation", "0.2"}, 16 * 10 + 2).schedule.steps, 2);
  EXPECT_EQ(OnText({"--epochs", "1"}, 17).schedule.steps, 1) << "fewer than a batch";
}

TEST(RunLength, WithoutEpochs_IsWhatStepsSaysWhateverTheData) {
  for (const size_t bytes : {100, 1000}) {
    EXPECT_EQ(OnText({"--steps", "7"}, bytes).schedule.steps, 7);
    EXPECT_EQ(OnText({"--steps", "7"}, bytes).sampling, Sampling::kReplacement);
    EXPECT_EQ(OnText({"--steps", "7", "--sampling", "shuffle"}, bytes).schedule.steps, 7);
  }
}

// A one-cycle schedule rises for three tenths of the run, for any length of the run.
TEST(RunLength, OfEpochs_IsWhatTheUsualWarmUpIsAShareOf) {
  const Words cycle = {"--epochs", "10", "--schedule", "one-cycle"};
  EXPECT_EQ(OnText(cycle, 16 * 40 + 1).schedule.steps, 100);
  EXPECT_EQ(OnText(cycle, 16 * 40 + 1).schedule.warmup_steps, 30);
  EXPECT_EQ(OnText({"--epochs", "10"}, 16 * 40 + 1).schedule.warmup_steps, 50);
  Words given = cycle;
  given.insert(given.end(), {"--warmup-steps", "7"});
  EXPECT_EQ(OnText(given, 16 * 40 + 1).schedule.warmup_steps, 7);
}

TEST(RunLength, SaidTwice_IsRefused) {
  EXPECT_THAT(Refusal({"--epochs", "2", "--steps", "5"}),
              StartsWith("--epochs and --steps are both given"));
}

TEST(RunLength, InEpochsOfWhatHasNone_IsRefused) {
  EXPECT_THAT(Refusal({"--epochs", "2", "--sampling", "replacement"}),
              StartsWith("--sampling replacement has no epochs"));
  EXPECT_EQ(Parse({"--epochs", "2"})->options->sampling, Sampling::kShuffle);
  EXPECT_EQ(Parse({"--epochs", "2", "--sampling", "sequential"})->options->sampling,
            Sampling::kSequential);
}

TEST(RunLength, OfNoEpochOrTooMany_IsRefused) {
  EXPECT_THAT(Refusal({"--epochs", "0"}), HasSubstr("--epochs"));
  EXPECT_THAT(Refusal({"--epochs", "0.5"}), HasSubstr("--epochs"));
  EXPECT_THAT(Refusal({"--sampling", "random"}), HasSubstr("replacement, shuffle, sequential"));
  const auto line = Parse({"--epochs", "1000000", "--batch", "1"});
  ASSERT_TRUE(line.ok()) << line.status();
  const Text text(std::vector<uint8_t>(16 * 1001 + 1, 'x'));
  EXPECT_THAT(std::string(WithStepsOf(*line->options, text).status().message()),
              StartsWith("--epochs 1000000: an epoch is 1001 sequences and a step 1"));
}

TEST(RunLength, OnDataWithoutASequence_IsRefusedWithTheSizes) {
  const auto line = Parse({"--epochs", "1"});
  const Text text(std::vector<uint8_t>(16, 'x'));
  EXPECT_THAT(std::string(WithStepsOf(*line->options, text).status().message()),
              HasSubstr("the data has 16 bytes, but one sequence takes 17"));
}

}  // namespace
}  // namespace geminid::trainer
