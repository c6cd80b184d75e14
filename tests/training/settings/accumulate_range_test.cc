#include "training/settings/accumulate_range.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace geminid::trainer {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TrainOptions Following(uint64_t least) {
  TrainOptions options;
  options.batch = 8;
  options.follows_noise = *ParseAccumulateRange(absl::StrCat("auto:", least, ":16"));
  return options;
}

std::string Refusal(const TrainOptions& options, int ranks) {
  const absl::Status status = CheckAccumulateRange(options, ranks);
  EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

TEST(CheckAccumulateRange, OfRunsThatMeasureTheirNoise_IsOk) {
  EXPECT_EQ(Refusal(Following(2), 1), "");
  EXPECT_EQ(Refusal(Following(1), 2), "");
  TrainOptions data = Following(1);
  data.parallel.data = 2;
  data.zero.stage = zero::Stage::kGradients;
  EXPECT_EQ(Refusal(data, 2), "");
}

TEST(CheckAccumulateRange, OfOneGradientAStep_SaysWhatToGive) {
  EXPECT_THAT(Refusal(Following(1), 1),
              AllOf(HasSubstr("--accumulate auto:1:16: one rank"), HasSubstr("give auto:2:16")));
  TrainOptions fixed;
  fixed.zero.accumulate = 1;
  EXPECT_EQ(Refusal(fixed, 1), "") << "without auto";
}

TEST(CheckAccumulateRange, OfOneGradientAStepOfBatchAuto_SaysWhatToGiveThere) {
  TrainOptions options;
  options.follows_noise = ParseBatchRange("auto:8:128", "1")->micro_batches;
  EXPECT_THAT(Refusal(options, 1), AllOf(HasSubstr("--batch auto:8:128: one rank"),
                                         HasSubstr("give --accumulate 2 or --ranks 2")));
}

TEST(ParseBatchRange, OfBoundsInSequences_CountsMicroBatches) {
  const auto range = ParseBatchRange("auto:8:128", "2");
  ASSERT_TRUE(range.ok()) << range.status();
  EXPECT_EQ(range->micro_batch, 4u);
  EXPECT_EQ(range->micro_batches.least, 2u);
  EXPECT_EQ(range->micro_batches.most, 32u);
  EXPECT_EQ(ParseBatchRange("auto:8:128", "auto:2:16")->micro_batches.most, 32u)
      << "a resumed run's range gives way";
}

TEST(ParseBatchRange, OfBoundsThatAreNone_SaysWhatToGive) {
  const auto why = [](const std::string& value, const std::string& accumulate) {
    const absl::Status status = ParseBatchRange(value, accumulate).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(why("auto", "1"), HasSubstr("as in auto:8:128"));
  EXPECT_THAT(why("auto:8", "1"), HasSubstr("as in auto:8:128"));
  EXPECT_THAT(why("auto:0:8", "1"), HasSubstr("--batch auto"));
  EXPECT_THAT(why("auto:16:8", "1"), HasSubstr("the most sequences must be more than the fewest"));
  EXPECT_THAT(why("auto:8:8", "1"), HasSubstr("give --batch 8"));
  EXPECT_THAT(why("auto:2:16", "4"), HasSubstr("a step of 2 sequences cannot have 4 micro-batch"));
  EXPECT_THAT(why("auto:8:20", "1"), HasSubstr("as in auto:8:16"));
}

TEST(CheckAccumulateRange, OfAModelOrSequencesThatAreCut_IsRefused) {
  const auto cut = [](auto set) {
    TrainOptions options = Following(2);
    set(&options.parallel);
    return Refusal(options, 2);
  };
  EXPECT_THAT(cut([](Parallel* parallel) { parallel->pipeline = 2; }), HasSubstr("whole model"));
  EXPECT_THAT(cut([](Parallel* parallel) { parallel->tensor.size = 2; }), HasSubstr("whole model"));
  EXPECT_THAT(cut([](Parallel* parallel) { parallel->expert = 2; }), HasSubstr("whole model"));
  EXPECT_THAT(cut([](Parallel* parallel) { parallel->sequence = 2; }),
              HasSubstr("whole sequences"));
  EXPECT_THAT(cut([](Parallel* parallel) { parallel->automatic = true; }),
              HasSubstr("--parallel auto"));
}

TEST(CheckAccumulateRange, OfZerosStageOne_IsRefused) {
  TrainOptions options = Following(2);
  options.zero.stage = zero::Stage::kState;
  EXPECT_THAT(Refusal(options, 2), HasSubstr("take zero=2 or 3"));
}

}  // namespace
}  // namespace geminid::trainer
