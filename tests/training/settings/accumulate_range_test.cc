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

TrainOptions FollowingBatch(const std::string& bounds, const std::string& accumulate = "1") {
  const BatchRange range = *ParseBatchRange(bounds, accumulate);
  TrainOptions options;
  options.batch = range.micro_batch;
  options.follows_noise = range.micro_batches;
  return options;
}

TEST(CheckAccumulateRange, OfOneGradientOfAnOddBatchAuto_SaysBoundsThatTheFlagCanDivide) {
  EXPECT_THAT(Refusal(FollowingBatch("auto:1:4"), 1),
              HasSubstr("give --batch auto:2:4 and also --accumulate 2 or --ranks 2"));
}

TEST(CheckBatchRange, OfMicroBatchesThatRanksCanDivide_IsOk) {
  EXPECT_EQ(CheckBatchRange(FollowingBatch("auto:2:4"), 2), absl::OkStatus());
  EXPECT_EQ(CheckBatchRange(FollowingBatch("auto:1:4"), 1), absl::OkStatus());
  TrainOptions fixed;
  fixed.batch = 1;
  EXPECT_EQ(CheckBatchRange(fixed, 2), absl::OkStatus()) << "without auto";
  fixed.follows_noise = *ParseAccumulateRange("auto:1:16");
  EXPECT_EQ(CheckBatchRange(fixed, 2), absl::OkStatus()) << "--batch itself is wrong there";
}

TEST(CheckBatchRange, OfFewerSequencesThanRanks_NamesTheFlagTheRanksAndBoundsThatWork) {
  EXPECT_EQ(
      CheckBatchRange(FollowingBatch("auto:1:4"), 2),
      absl::InvalidArgumentError("--batch auto:1:4: a micro-batch has 1 sequence (MIN), which "
                                 "cannot be divided among 2 ranks; give --batch auto:2:4"));
  EXPECT_EQ(CheckBatchRange(FollowingBatch("auto:4:64", "4"), 2),
            absl::InvalidArgumentError("--batch auto:4:64: a micro-batch has 1 sequence (MIN / 4), "
                                       "which cannot be divided among 2 ranks; give --batch "
                                       "auto:8:64"));
}

// Whatever the bounds were, those of the error are read, can be divided, and have no fewer
// sequences.
TEST(CheckBatchRange, OfAnyBoundsThatCannotBeDivided_SaysBoundsThatAreTaken) {
  for (const char* bounds : {"auto:1:4", "auto:1:2", "auto:6:12", "auto:7:70", "auto:3:9"}) {
    for (uint64_t shares = 2; shares <= 9; ++shares) {
      const TrainOptions given = FollowingBatch(bounds);
      const std::string refusal(CheckBatchRange(given, shares).message());
      if (given.batch % shares == 0) continue;
      const size_t at = refusal.find("give --batch ");
      ASSERT_NE(at, std::string::npos) << refusal;
      const std::string better = refusal.substr(at + sizeof "give --batch " - 1);
      ASSERT_TRUE(ParseBatchRange(better, "1").ok()) << refusal;
      EXPECT_EQ(CheckBatchRange(FollowingBatch(better), shares), absl::OkStatus()) << refusal;
      EXPECT_GE(FollowingBatch(better).batch, given.batch) << refusal;
    }
  }
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
