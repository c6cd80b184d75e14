// The engine's measurements of a step's separate gradients, compared with a dense reference.
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <vector>

#include "client/zero/engine/gradient_measure.h"
#include "tests/client/zero/engine_fixture.h"

namespace geminid::zero {
namespace {

class StepGradientsTest : public EngineTest {
 protected:
  // The measurements of rank 0 by step. The other ranks must have the same.
  std::vector<StepGradients> MeasuredGradients() {
    std::vector<std::vector<StepGradients>> by_rank(static_cast<size_t>(run_.world_size));
    std::mutex mutex;
    run_.between_steps = [&](Engine* engine, int rank, int) {
      std::lock_guard lock(mutex);
      by_rank[static_cast<size_t>(rank)].push_back(NewestStepGradients(*engine));
      MeasureStepGradients(*engine);  // from the second step on
    };
    norms_.clear();
    for (const StepResult& step : MustTrain().steps) norms_.push_back(step.gradient_norm);
    for (const std::vector<StepGradients>& rank : by_rank) {
      EXPECT_EQ(rank.size(), by_rank[0].size());
      for (size_t step = 0; step < rank.size(); ++step) {
        EXPECT_EQ(rank[step].count, by_rank[0][step].count);
        EXPECT_EQ(rank[step].square_of_mean, by_rank[0][step].square_of_mean);
        EXPECT_EQ(rank[step].mean_square, by_rank[0][step].mean_square);
      }
    }
    return by_rank[0];
  }

  void ExpectThoseOfDenseTraining() {
    const std::vector<StepGradients> measured = MeasuredGradients();
    const DenseResult dense = RunDensely(run_);
    ASSERT_EQ(measured.size(), dense.mean_squares.size());
    EXPECT_EQ(measured[0].count, 0u) << "it was not asked to measure the first step";
    for (size_t step = 1; step < measured.size(); ++step) {
      const double square = dense.mean_squares[step];
      const double norm = dense.gradient_norms[step];
      EXPECT_EQ(measured[step].count,
                static_cast<uint64_t>(run_.world_size * run_.options.accumulate));
      EXPECT_NEAR(measured[step].mean_square, square, 1e-5 * square) << step;
      EXPECT_NEAR(measured[step].square_of_mean, norm * norm, 1e-5 * norm * norm) << step;
      EXPECT_GT(measured[step].mean_square, measured[step].square_of_mean);
    }
  }

  std::vector<double> norms_;
};

TEST_F(StepGradientsTest, OfRanksAndMicroBatches_AreThoseOfDenseTraining) {
  for (const auto& [ranks, accumulate] : {std::pair{2, 1}, {3, 1}, {1, 2}, {2, 3}}) {
    for (const Stage stage : {Stage::kState, Stage::kGradients, Stage::kWeights}) {
      SCOPED_TRACE(::testing::Message() << ranks << " ranks, " << accumulate
                                        << " micro-batches, stage " << static_cast<int>(stage));
      run_.world_size = ranks;
      run_.options.accumulate = accumulate;
      run_.options.stage = stage;
      ExpectThoseOfDenseTraining();
    }
  }
}

// The bits are the same with and without measurements, and in a tight arena.
TEST_F(StepGradientsTest, WhenMeasured_LeaveTheWeightsAsTheyAre) {
  run_.world_size = 2;
  run_.options.accumulate = 2;
  run_.arena_bytes = kTightArena;
  const std::vector<std::vector<float>> expected = TrainDensely(run_);
  run_.between_steps = [](Engine* engine, int, int) { MeasureStepGradients(*engine); };
  ExpectSameBits(MustTrain().weights, expected);
}

TEST_F(StepGradientsTest, OfAClippedStep_AreNotClipped) {
  run_.world_size = 2;
  run_.options.clip_norm = 0.5;
  ExpectThoseOfDenseTraining();
  for (const double norm : norms_) EXPECT_GT(norm, 1);
}

TEST_F(StepGradientsTest, WithALossScale_AreThoseOfTheLoss) {
  run_.world_size = 2;
  run_.options.loss_scale = FixedLossScale(256);
  ExpectThoseOfDenseTraining();
}

TEST_F(StepGradientsTest, WithParametersThatAreFrozenOrUnused_AreThoseOfTheOthers) {
  run_.world_size = 2;
  run_.model.parameters[1].trainable = false;
  run_.model.parameters.push_back(run_.model.parameters[1]);
  run_.model.parameters.back().name = "unused";
  run_.model.parameters.back().trainable = true;
  ExpectThoseOfDenseTraining();
}

TEST_F(StepGradientsTest, WithUpdatesInTheBackwardPass_AreThoseOfDenseTraining) {
  run_.world_size = 2;
  run_.options.update = UpdateTime::kInBackward;
  ExpectThoseOfDenseTraining();
}

TEST_F(StepGradientsTest, OfAStepThatOverflows_AreNotFinite) {
  run_.world_size = 2;
  run_.overflow_step = 2;
  run_.options.loss_scale = LossScalerOptions{.initial_scale = 256};
  const std::vector<StepGradients> measured = MeasuredGradients();
  ASSERT_GT(measured.size(), 3u);
  EXPECT_FALSE(std::isfinite(measured[2].mean_square));
  EXPECT_TRUE(std::isfinite(measured[3].mean_square));
}

// One more step has gradients of zeros. The first rank writes to its shard of one of them.
TEST_F(StepGradientsTest, ThatWereWrittenToSince_AreNotSaid) {
  run_.world_size = 2;
  run_.between_steps = [](Engine* engine, int rank, int step) {
    MeasureStepGradients(*engine);
    if (step != 1) return;
    ASSERT_EQ(engine->BeginMicroBatch(), absl::OkStatus());
    ASSERT_EQ(engine->GradientNorm().value_or(-1), 0);
    EXPECT_EQ(NewestStepGradients(*engine).count, 2u);
    EXPECT_EQ(NewestStepGradients(*engine).mean_square, 0);
    const ParameterId first{0};
    const std::vector<ShardRange> shards = engine->ShardOf(first);
    if (rank == 0) {
      ASSERT_FALSE(shards.empty());
      ASSERT_EQ(engine->WriteGradient(first, shards[0].offset, std::vector<float>{1}),
                absl::OkStatus());
    }
    ASSERT_NEAR(engine->GradientNorm().value_or(-1), 1, 1e-6);
    EXPECT_EQ(NewestStepGradients(*engine).count, 0u) << "on rank " << rank;
    ASSERT_EQ(engine->Step({.learning_rate = 0}).status(), absl::OkStatus());
  };
  MustTrain();
}

TEST_F(StepGradientsTest, OfOneRankWithOneMicroBatch_AreNotMeasured) {
  for (const StepGradients& step : MeasuredGradients()) EXPECT_EQ(step.count, 0u);
}

}  // namespace
}  // namespace geminid::zero
