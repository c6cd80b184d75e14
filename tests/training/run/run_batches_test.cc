#include "training/run/run_batches.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "training/data/text.h"

namespace geminid::trainer {
namespace {

constexpr uint64_t kBatch = 4, kContext = 8;

class RunBatchesTest : public ::testing::Test {
 protected:
  RunBatchesTest() {
    options_.seed = 5;
    options_.batch = kBatch;
    options_.model.context = kContext;
    options_.dropout = 0.25;
    options_.zero.accumulate = 2;
    options_.schedule.steps = 10;
  }

  Batches Data() const {
    return *Batches::Create(TokenRange::All(text_),
                            {.seed = 5, .context = kContext, .batch = kBatch, .accumulate = 2});
  }

  // The tokens of a micro-batch that begins with this sequence.
  std::vector<int32_t> TokensFrom(uint64_t sequence) const {
    Batches data = Data();
    const MicroBatch batch = *data.GetFrom(sequence);
    return {batch.tokens.begin(), batch.tokens.end()};
  }

  static std::vector<int32_t> Tokens(RunBatches* batches, uint64_t micro_batch) {
    const MicroBatch batch = *batches->Get(micro_batch);
    return {batch.tokens.begin(), batch.tokens.end()};
  }

  const Text text_{[] {
    std::vector<uint8_t> bytes(200);
    std::iota(bytes.begin(), bytes.end(), uint8_t{0});
    return bytes;
  }()};
  TrainOptions options_;
};

TEST_F(RunBatchesTest, OfAStep_AreTheSequencesAfterTheStepBefore) {
  RunBatches batches(options_, 1, Data());
  EXPECT_EQ(batches.tokens_of_step(), 2 * kBatch * kContext);
  EXPECT_EQ(Tokens(&batches, 1), TokensFrom(kBatch));
  batches.GoOnAfter(batches.EndWith({}, std::nullopt));
  EXPECT_EQ(Tokens(&batches, 0), TokensFrom(2 * kBatch));
}

TEST_F(RunBatchesTest, OfAStep_DropOutAsTheRunSays) {
  RunBatches batches(options_, 1, Data());
  const MicroBatch batch = *batches.Get(0);
  EXPECT_EQ(batch.dropout.share, 0.25);
  EXPECT_EQ(batch.dropout.seed, 5u);
}

// The engine may refuse the step whose end has already been computed.
TEST_F(RunBatchesTest, OfAStepThatIsNotCommitted_StayWhereTheyAre) {
  RunBatches batches(options_, 1, Data());
  const RunBatches::StepEnd end = batches.EndWith({}, std::nullopt);
  EXPECT_EQ(end.course.saved().data_position, 2 * kBatch);
  EXPECT_EQ(batches.course().saved().data_position, 0u);
  EXPECT_EQ(Tokens(&batches, 0), TokensFrom(0));
}

// The advice is for the run's current batch.
TEST_F(RunBatchesTest, ThatFollowNoise_TellTheWatchOfEachChange) {
  options_.follows_noise = AccumulateRange{.least = 1, .most = 8, .update_cost = 1};
  RunBatches batches(options_, 2, Data());
  const FollowState grown = {.sequences = 4 * kBatch, .update_cost = 1};
  const auto words = WordsOf(grown);
  ASSERT_TRUE(batches.GoOn(
      3, {.data_position = 5 * kBatch, .random_state = {5, words[0], words[1], words[2]}}));
  EXPECT_EQ(batches.watch().Numbers().per_step, 4 * kBatch);
  RunBatches::StepEnd end = batches.EndWith({}, std::nullopt);
  end.change = BatchChange{.from = 4, .to = 2, .batch = kBatch};
  batches.GoOnAfter(end);
  EXPECT_EQ(batches.watch().Numbers().per_step, 2 * kBatch);
}

TEST_F(RunBatchesTest, OfAnotherRun_DoNotGoOn) {
  RunBatches batches(options_, 1, Data());
  EXPECT_FALSE(batches.GoOn(3, {.data_position = 1, .random_state = {6, 1, 0, 0}}));
  EXPECT_EQ(batches.course().first_sample(), 0u);
}

}  // namespace
}  // namespace geminid::trainer
