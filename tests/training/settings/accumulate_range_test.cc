#include "training/settings/accumulate_range.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace geminid::trainer {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TrainOptions Following(uint64_t least) {
  TrainOptions options;
  options.batch = 8;
  options.follows_noise = AccumulateRange{.least = least, .most = 16};
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
