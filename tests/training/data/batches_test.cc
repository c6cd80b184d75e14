#include "training/data/batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <vector>

#include "training/data/text.h"

namespace geminid::trainer {
namespace {

constexpr uint64_t kContext = 16;

Text Counting(size_t bytes) {
  std::vector<uint8_t> text(bytes);
  std::iota(text.begin(), text.end(), uint8_t{0});
  return Text(std::move(text));
}

absl::StatusOr<Batches> Make(const Text& text, const BatchPlan& plan) {
  return Batches::Create(TokenRange::All(text), plan);
}

// All ranks' tokens of one micro-batch, in rank order.
std::vector<int32_t> Tokens(const Text& text, uint64_t world_size, uint64_t seed, uint64_t step,
                            uint64_t micro_batch) {
  std::vector<int32_t> tokens;
  for (uint64_t rank = 0; rank < world_size; ++rank) {
    auto batches = Make(text, {.seed = seed,
                               .context = kContext,
                               .batch = 8,
                               .accumulate = 3,
                               .rank = rank,
                               .world_size = world_size});
    const MicroBatch batch = *batches->Get(step, micro_batch);
    EXPECT_EQ(batch.shape.sequences, 8 / world_size);
    EXPECT_EQ(batch.tokens.size(), batches->tokens_per_micro_batch());
    tokens.insert(tokens.end(), batch.tokens.begin(), batch.tokens.end());
  }
  return tokens;
}

TEST(Batches, OfAnyNumberOfRanks_AreTheSameSamples) {
  const Text text = Counting(200);
  for (uint64_t step : {0, 7}) {
    for (uint64_t micro_batch : {0, 2}) {
      const std::vector<int32_t> one = Tokens(text, 1, 5, step, micro_batch);
      EXPECT_EQ(Tokens(text, 2, 5, step, micro_batch), one);
      EXPECT_EQ(Tokens(text, 4, 5, step, micro_batch), one);
      EXPECT_EQ(Tokens(text, 8, 5, step, micro_batch), one);
    }
  }
}

TEST(Batches, OfPiecesOfSequences_AreTheWholeSequencesPieceByPiece) {
  const Text text = Counting(200);
  BatchPlan plan = {.seed = 5, .context = kContext, .batch = 4, .rank = 1, .world_size = 2};
  auto whole = Make(text, plan);
  const MicroBatch all = *whole->Get(3, 0);
  plan.pieces = 4;
  for (plan.piece = 0; plan.piece < plan.pieces; ++plan.piece) {
    auto batches = Make(text, plan);
    const MicroBatch piece = *batches->Get(3, 0);
    EXPECT_EQ(piece.shape.sequences, all.shape.sequences);
    EXPECT_EQ(piece.shape.sequence_length, kContext / 4);
    EXPECT_EQ(piece.positions.first, plan.piece * kContext / 4);
    EXPECT_EQ(batches->tokens_per_micro_batch(), piece.tokens.size());
    EXPECT_EQ(batches->tokens_per_step(), whole->tokens_per_step());
    for (size_t s = 0; s < piece.shape.sequences; ++s) {
      for (size_t t = 0; t < kContext / 4; ++t) {
        const size_t there = s * kContext + piece.positions.first + t;
        EXPECT_EQ(piece.tokens[s * kContext / 4 + t], all.tokens[there]);
        EXPECT_EQ(piece.targets[s * kContext / 4 + t], all.targets[there]);
      }
    }
  }
}

TEST(Batches, OfPiecesInAZigzag_HaveAChunkFromTheFrontAndOneFromTheBack) {
  const Text text = Counting(200);
  BatchPlan plan = {.seed = 5, .context = kContext, .batch = 4, .rank = 1, .world_size = 2};
  auto whole = Make(text, plan);
  const MicroBatch all = *whole->Get(3, 0);
  plan.pieces = 2;
  plan.zigzag = true;
  const std::vector<std::vector<size_t>> places = {{0, 1, 2, 3, 12, 13, 14, 15},
                                                   {4, 5, 6, 7, 8, 9, 10, 11}};
  for (plan.piece = 0; plan.piece < plan.pieces; ++plan.piece) {
    const std::vector<size_t>& mine = places[plan.piece];
    auto batches = Make(text, plan);
    const MicroBatch piece = *batches->Get(3, 0);
    EXPECT_EQ(piece.shape.sequence_length, mine.size());
    EXPECT_EQ(piece.positions.EndOf(mine.size()), mine.back() + 1);
    for (const Positions::Run& run : piece.positions.RunsOf(mine.size())) {
      EXPECT_EQ(run.position, mine[run.token]);
      EXPECT_EQ(run.count, 4);
    }
    for (size_t s = 0; s < piece.shape.sequences; ++s) {
      for (size_t t = 0; t < mine.size(); ++t) {
        EXPECT_EQ(piece.tokens[s * mine.size() + t], all.tokens[s * kContext + mine[t]]);
        EXPECT_EQ(piece.targets[s * mine.size() + t], all.targets[s * kContext + mine[t]]);
      }
    }
  }
}

TEST(Batches, OfOtherStepsSeedsAndMicroBatches_Differ) {
  const Text text = Counting(200);
  const std::set<std::vector<int32_t>> distinct = {
      Tokens(text, 1, 5, 0, 0), Tokens(text, 1, 5, 0, 1), Tokens(text, 1, 5, 1, 0),
      Tokens(text, 1, 6, 0, 0)};
  EXPECT_EQ(distinct.size(), 4);
}

TEST(Batches, Targets_AreTheBytesAfterTheTokens) {
  const Text text = Counting(200);
  auto batches = Make(text, {.seed = 1, .context = kContext, .batch = 4});
  const MicroBatch batch = *batches->Get(3, 0);
  for (size_t i = 0; i < batch.tokens.size(); ++i) {
    EXPECT_EQ(batch.targets[i], batch.tokens[i] + 1);
    if (i % kContext != 0) {
      EXPECT_EQ(batch.tokens[i], batch.tokens[i - 1] + 1);
    }
  }
}

TEST(Batches, OfAShortText_ReachEveryStartAndNoFurther) {
  const Text text = Counting(kContext + 3);  // starts 0, 1 and 2
  auto batches = Make(text, {.seed = 1, .context = kContext, .batch = 32});
  std::set<int32_t> starts;
  const MicroBatch batch = *batches->Get(0, 0);
  for (size_t i = 0; i < batch.tokens.size(); i += kContext) starts.insert(batch.tokens[i]);
  EXPECT_THAT(starts, testing::ElementsAre(0, 1, 2));
}

TEST(Batches, FirstSample_CountsWhatCameBefore) {
  const Text text = Counting(200);
  auto batches = Make(text, {.seed = 1, .context = kContext, .batch = 8, .accumulate = 3});
  EXPECT_EQ(batches->FirstSample(0), 0);
  EXPECT_EQ(batches->FirstSample(2), 48);
  EXPECT_EQ(batches->tokens_per_step(), 24 * kContext);
}

TEST(Batches, ThatCannotBeDivided_AreRefused) {
  const Text text = Counting(200);
  const auto refused =
      Make(text, {.seed = 1, .context = kContext, .batch = 8, .rank = 0, .world_size = 3});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()),
              testing::HasSubstr("--batch 8: it cannot be divided among 3 ranks"));
}

TEST(Batches, SpreadEvenly_ReachFromTheFirstStartToTheLastOnAnyNumberOfRanks) {
  const Text text = Counting(kContext + 31);  // starts 0 to 30
  std::vector<std::vector<int32_t>> starts_by_ranks;
  for (uint64_t world_size : {1, 2, 4}) {
    std::vector<int32_t> starts;
    for (uint64_t index = 0; index < 4; ++index) {
      for (uint64_t rank = 0; rank < world_size; ++rank) {
        auto batches =
            Make(text, {.context = kContext, .batch = 4, .rank = rank, .world_size = world_size});
        const MicroBatch batch = *batches->GetEven(index, 4);
        for (size_t i = 0; i < batch.tokens.size(); i += kContext)
          starts.push_back(batch.tokens[i]);
      }
    }
    starts_by_ranks.push_back(starts);
  }
  std::vector<int32_t> expected;
  for (int32_t sample = 0; sample < 16; ++sample) expected.push_back(2 * sample);
  EXPECT_THAT(starts_by_ranks, testing::Each(expected));
}

}  // namespace
}  // namespace geminid::trainer
