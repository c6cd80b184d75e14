#include "training/run/batch_course.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace geminid::trainer {
namespace {

constexpr uint64_t kSeed = 5;

TrainOptions OptionsOf(uint64_t batch, uint64_t steps) {
  TrainOptions options;
  options.batch = batch;
  options.seed = kSeed;
  options.schedule = {
      .shape = ScheduleShape::kLinear, .peak = 1, .warmup_steps = 4, .steps = steps};
  return options;
}

TrainOptions Following(uint64_t batch, uint64_t steps, AccumulateRange range) {
  TrainOptions options = OptionsOf(batch, steps);
  options.follows_noise = range;
  return options;
}

// Gradients of two ranks with |G|^2 = 1 and the variance 64 of one sequence.
zero::StepGradients Gradients(uint64_t batch, uint64_t micro_batches) {
  const double n = static_cast<double>(2 * micro_batches);
  const double each = static_cast<double>(batch) / 2;
  return {.count = 2 * micro_batches,
          .mean_square = 1 + 64 / each,
          .square_of_mean = 1 + 64 / (n * each)};
}

struct StepTaken {
  uint64_t first = 0;
  uint64_t micro_batches = 0;
  double rate = 0;

  bool operator==(const StepTaken&) const = default;
};

std::vector<StepTaken> RunToEnd(BatchCourse* course, uint64_t batch, uint64_t done = 0) {
  std::vector<StepTaken> steps;
  while (done + steps.size() < course->steps()) {
    steps.push_back({course->first_sample(), course->micro_batches(), course->learning_rate()});
    course->EndStep(Gradients(batch, course->micro_batches()), std::nullopt);
  }
  return steps;
}

TEST(BatchCourse, OfAFixedBatch_IsTheStepsOfTheSchedule) {
  TrainOptions options = OptionsOf(8, 20);
  options.zero.accumulate = 3;
  BatchCourse course(options, 2);
  const std::vector<StepTaken> steps = RunToEnd(&course, 8);
  ASSERT_EQ(steps.size(), 20u);
  for (uint64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(steps[i], (StepTaken{24 * i, 3, options.schedule.At(i)}));
  }
  EXPECT_EQ(course.saved(), (checkpoint::RunState{480, {kSeed, 480, 0, 0}}));
}

// 60 micro-batches make 16 steps of one, 16 of two and 3 of four.
TEST(BatchCourse, ThatFollowsNoise_TrainsOnTheSameSequencesInFewerSteps) {
  const TrainOptions options = Following(8, 60, {.least = 1, .most = 8, .update_cost = 16});
  BatchCourse course(options, 2);
  EXPECT_EQ(course.steps(), 60u);
  const std::vector<StepTaken> steps = RunToEnd(&course, 8);
  ASSERT_EQ(steps.size(), 35u);
  uint64_t next = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i].first, 8 * next) << i;
    EXPECT_EQ(steps[i].micro_batches, i < 16 ? 1 : i < 32 ? 2 : 4) << i;
    next += steps[i].micro_batches;
    const double factor = std::sqrt(static_cast<double>(steps[i].micro_batches));
    EXPECT_DOUBLE_EQ(steps[i].rate, factor * options.schedule.At(next - 1)) << i;
  }
  EXPECT_EQ(next, 60u);
  EXPECT_EQ(course.saved().data_position, 480u);
}

TEST(BatchCourse, WhoseLastStepHasTooFewSequencesLeft_TrainsOnThoseAlone) {
  const TrainOptions options = Following(8, 53, {.least = 1, .most = 8, .update_cost = 16});
  BatchCourse course(options, 2);
  const std::vector<StepTaken> steps = RunToEnd(&course, 8);
  ASSERT_EQ(steps.size(), 34u);
  EXPECT_EQ(steps[32].micro_batches, 4u);
  EXPECT_EQ(steps[33].micro_batches, 1u);
  EXPECT_DOUBLE_EQ(steps[33].rate, options.schedule.At(52));
}

TEST(BatchCourse, ThatGoesOnAfterAnyStep_TakesTheSameSteps) {
  const TrainOptions options = Following(8, 60, {.least = 1, .most = 8, .update_cost = 16});
  BatchCourse straight(options, 2);
  const std::vector<StepTaken> all = RunToEnd(&straight, 8);
  for (uint64_t stop = 1; stop < all.size(); ++stop) {
    BatchCourse before(options, 2);
    for (uint64_t i = 0; i < stop; ++i) {
      before.EndStep(Gradients(8, before.micro_batches()), std::nullopt);
    }
    BatchCourse after(options, 2);
    ASSERT_TRUE(after.GoOn(stop, before.saved()));
    EXPECT_EQ(after.saved(), before.saved());
    const std::vector<StepTaken> rest = RunToEnd(&after, 8, stop);
    EXPECT_EQ(rest, std::vector<StepTaken>(all.begin() + static_cast<ptrdiff_t>(stop), all.end()));
    EXPECT_EQ(after.saved(), straight.saved());
  }
}

TEST(BatchCourse, OfAnotherRun_DoesNotGoOn) {
  const TrainOptions following = Following(8, 60, {.least = 1, .most = 8, .update_cost = 16});
  BatchCourse course(following, 2);
  for (int i = 0; i < 20; ++i) course.EndStep(Gradients(8, 1), std::nullopt);
  const checkpoint::RunState saved = course.saved();
  TrainOptions fixed = OptionsOf(8, 60);
  EXPECT_FALSE(BatchCourse(fixed, 2).GoOn(20, saved));
  TrainOptions other_seed = following;
  other_seed.seed = kSeed + 1;
  EXPECT_FALSE(BatchCourse(other_seed, 2).GoOn(20, saved));
  EXPECT_FALSE(BatchCourse(following, 2).GoOn(20, {480, {kSeed, 0, 0, 0}}));
  EXPECT_FALSE(BatchCourse(fixed, 2).GoOn(20, {159, {kSeed, 159, 0, 0}}));
  EXPECT_TRUE(BatchCourse(fixed, 2).GoOn(20, {160, {kSeed, 160, 0, 0}}));
}

TEST(BatchCourse, ThatGoesOnFromAFixedBatch_BeginsWithTheSmallestStep) {
  BatchCourse course(Following(8, 60, {.least = 1, .most = 8, .update_cost = 16}), 2);
  ASSERT_TRUE(course.GoOn(20, {160, {kSeed, 160, 0, 0}}));
  EXPECT_EQ(course.first_sample(), 160u);
  EXPECT_EQ(course.micro_batches(), 1u);
  EXPECT_EQ(course.steps(), 60u);
}

TEST(BatchCourse, ThatGoesOnWithHalfTheMicroBatch_HasTheSameSteps) {
  const TrainOptions options = Following(8, 60, {.least = 1, .most = 8, .update_cost = 16});
  BatchCourse before(options, 2);
  for (int i = 0; i < 40 && before.micro_batches() < 4; ++i) {
    before.EndStep(Gradients(8, before.micro_batches()), std::nullopt);
  }
  const TrainOptions halves = Following(4, 60, {.least = 2, .most = 16});
  BatchCourse after(halves, 2);
  ASSERT_TRUE(after.GoOn(32, before.saved()));
  EXPECT_EQ(after.micro_batches(), 8u);
  EXPECT_EQ(after.first_sample(), before.first_sample());
  EXPECT_EQ(after.steps(), before.steps());
  EXPECT_DOUBLE_EQ(after.learning_rate(), before.learning_rate());
}

TEST(BatchCourse, ThatGoesOnWithAnUpdateCostOfItsOwn_TakesIt) {
  const TrainOptions given = Following(8, 60, {.least = 1, .most = 8, .update_cost = 16});
  BatchCourse before(given, 2);
  before.EndStep(Gradients(8, 1), std::nullopt);
  const TrainOptions none_given = Following(8, 60, {.least = 1, .most = 8});
  BatchCourse same(none_given, 2);
  ASSERT_TRUE(same.GoOn(1, before.saved()));
  EXPECT_EQ(same.state().update_cost, 16);
  const TrainOptions other_given = Following(8, 60, {.least = 1, .most = 8, .update_cost = 7});
  BatchCourse other(other_given, 2);
  ASSERT_TRUE(other.GoOn(1, before.saved()));
  EXPECT_EQ(other.state().update_cost, 7);
}

}  // namespace
}  // namespace geminid::trainer
