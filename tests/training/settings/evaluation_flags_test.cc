#include "training/settings/evaluation_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tools/trainer/flags/command_line.h"

namespace geminid::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

absl::StatusOr<CommandLine> Parse(std::vector<std::string> more) {
  more.insert(more.begin(), {"--text", "t", "--model", "gpt2-tiny", "--eval-only"});
  return ParseCommandLine(more);
}

std::string Refusal(const std::vector<std::string>& more) {
  const auto line = Parse(more);
  EXPECT_TRUE(absl::IsInvalidArgument(line.status())) << line.status();
  return std::string(line.status().message());
}

TEST(EvaluationFlags, WithoutAnythingToLoad_SayWhatIsMissing) {
  EXPECT_THAT(Refusal({}), StartsWith("--eval-only: there is nothing to evaluate; give --load"));
}

TEST(EvaluationFlags, ThatWriteWhatTrainingWrites_AreRefused) {
  for (const std::vector<std::string>& flags :
       std::vector<std::vector<std::string>>{{"--save", "s"},
                                             {"--save", "s", "--resume"},
                                             {"--export", "e"},
                                             {"--log", "l"},
                                             {"--tensorboard", "b"},
                                             {"--restarts", "2"}}) {
    std::vector<std::string> words = flags;
    words.insert(words.end(), {"--load", "none"});
    EXPECT_THAT(Refusal(words), HasSubstr(": --eval-only trains nothing and writes nothing but "
                                          "--report; leave it out"))
        << flags[0];
  }
}

TEST(EvaluationFlags, WithRanksThatTheDaemonWouldChange_AreRefused) {
  EXPECT_THAT(Refusal({"--load", "none", "--ranks", "1:2"}),
              HasSubstr("--ranks MIN:MAX is for training, which the daemon may change"));
}

// A training command evaluates if --eval-only and --load are appended.
TEST(EvaluationFlags, OfTraining_AreSaidInOneLineAndLeftOut) {
  const auto line =
      Parse({"--load", "none", "--steps", "5", "--lr", "1e-3", "--accumulate", "4", "--dropout",
             "0.5", "--activations", "keep", "--optimizer", "sgd", "--momentum", "0.9"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_THAT(line->notes, ElementsAre(HasSubstr("they do nothing with --eval-only")));
  for (const char* flag : {"--steps", "--lr", "--accumulate", "--dropout", "--activations",
                           "--optimizer", "--momentum"}) {
    EXPECT_THAT(line->notes[0], HasSubstr(flag));
  }
  const TrainOptions& options = *line->options;
  EXPECT_TRUE(options.eval_only);
  EXPECT_EQ(options.notes, line->notes);
  EXPECT_EQ(options.zero.accumulate, 1);
  EXPECT_EQ(options.dropout, 0);
  EXPECT_EQ(options.activations, Activations::kRecompute);
}

TEST(EvaluationFlags, OfWhatEvaluates_AreTaken) {
  const auto line = Parse({"--load", "none", "--batch", "6", "--dtype", "fp32", "--validation",
                           "0.25", "--validation-batches", "3", "--ranks", "2", "--placement",
                           "cpu", "--device-memory", "4MiB", "--report", "r"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_THAT(line->notes, IsEmpty());
  const TrainOptions& options = *line->options;
  EXPECT_EQ(options.batch, 6);
  EXPECT_EQ(options.validation_batches, 3);
  EXPECT_EQ(options.zero.data_type, zero::DataType::kFloat32);
  EXPECT_EQ(options.zero.placement, zero::Placement::kCpu);
}

TEST(EvaluationFlags, OfMeshesThatDoNotEvaluate_AreRefused) {
  for (const char* parallel : {"auto", "tensor=1d:2"}) {
    EXPECT_THAT(Refusal({"--load", "none", "--parallel", parallel}),
                StartsWith("--parallel: --eval-only supports only pipeline=N"));
  }
}

}  // namespace
}  // namespace geminid::trainer
