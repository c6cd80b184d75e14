#include "training/data/masked_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "training/data/batches.h"
#include "training/data/text.h"
#include "training/nn/micro_batch.h"

namespace geminid::trainer {
namespace {

using testing::ElementsAreArray;

constexpr uint64_t kVocabulary = 5000;
const Masking kMasking = {.mask_token = 4, .special_tokens = {0, 2, 3}};

struct Masked {
  std::vector<int32_t> before, tokens, targets;
};

Masked Mask(std::vector<int32_t> tokens, uint64_t stream) {
  Masked masked = {tokens, tokens, std::vector<int32_t>(tokens.size())};
  MaskSequence(kMasking, kVocabulary, stream, masked.tokens, masked.targets);
  return masked;
}

std::vector<int32_t> Ordinary(size_t count) {
  std::vector<int32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), 10);
  return tokens;
}

TEST(MaskedTokens, OfASequence_AreFifteenPercentAndAtLeastOne) {
  EXPECT_EQ(MaskedTokens(1), 1u);
  EXPECT_EQ(MaskedTokens(9), 1u);
  EXPECT_EQ(MaskedTokens(10), 2u);
  EXPECT_EQ(MaskedTokens(128), 19u);
  EXPECT_EQ(MaskedTokens(512), 77u);
  for (const size_t length : {1, 7, 10, 128, 512}) {
    const Masked masked = Mask(Ordinary(length), 5);
    size_t chosen = 0;
    for (size_t i = 0; i < length; ++i) {
      if (masked.targets[i] == kNoTarget) {
        EXPECT_EQ(masked.tokens[i], masked.before[i]);
        continue;
      }
      ++chosen;
      EXPECT_EQ(masked.targets[i], masked.before[i]);
    }
    EXPECT_EQ(chosen, MaskedTokens(length));
  }
}

TEST(MaskedTokens, OfManySequences_AreHiddenRandomAndKeptAsPublished) {
  constexpr size_t kSequences = 2000, kLength = 100;
  double hidden = 0, kept = 0, random = 0;
  std::vector<double> at(kLength);
  for (uint64_t stream = 0; stream < kSequences; ++stream) {
    const Masked masked = Mask(Ordinary(kLength), stream);
    for (size_t i = 0; i < kLength; ++i) {
      if (masked.targets[i] == kNoTarget) continue;
      ++at[i];
      (masked.tokens[i] == 4 ? hidden : masked.tokens[i] == masked.before[i] ? kept : random) += 1;
    }
  }
  constexpr double kCount = kSequences * 15.0;
  const auto near = [](double count, double share, double of) {
    EXPECT_NEAR(count / of, share, 5 * std::sqrt(share * (1 - share) / of));
  };
  near(hidden, 0.8, kCount);
  near(kept, 0.1, kCount);
  near(random, 0.1, kCount);
  for (const double count : at) near(count, 0.15, kSequences);
}

TEST(MaskedTokens, ThatAreSpecial_AreNeverChosen) {
  for (uint64_t stream = 0; stream < 50; ++stream) {
    std::vector<int32_t> tokens = {2, 10, 3, 4, 11, 0, 2, 2, 3, 3, 0, 0, 4, 4, 0, 0, 2, 3, 3, 0};
    const Masked masked = Mask(tokens, stream);  // chooses 3 of 20, but only 2 are ordinary
    for (size_t i = 0; i < tokens.size(); ++i) {
      EXPECT_EQ(masked.targets[i], tokens[i] >= 10 ? tokens[i] : kNoTarget);
    }
  }
  const Masked none = Mask({2, 3, 0, 4}, 1);
  EXPECT_THAT(none.targets, testing::Each(kNoTarget));
  EXPECT_EQ(none.tokens, none.before);
}

TEST(MaskedTokens, OfAnotherSampleSeedOrEpoch_AreOthers) {
  const std::vector<int32_t> tokens = Ordinary(100);
  const std::vector<int32_t> one = Mask(tokens, MaskStreamOfSample(1, 7)).targets;
  EXPECT_EQ(Mask(tokens, MaskStreamOfSample(1, 7)).targets, one);
  EXPECT_NE(Mask(tokens, MaskStreamOfSample(1, 8)).targets, one);
  EXPECT_NE(Mask(tokens, MaskStreamOfSample(2, 7)).targets, one);
  EXPECT_NE(Mask(tokens, MaskStreamOfStart(7)).targets, one);
}

constexpr uint64_t kContext = 16;

BatchPlan Plan() {
  return {.seed = 5,
          .context = kContext,
          .batch = 8,
          .accumulate = 3,
          .masking = Masking{.mask_token = 256},
          .vocabulary = 257};
}

struct Taken {
  std::vector<int32_t> tokens, targets;
};

Text Counting() {
  std::vector<uint8_t> text(200);
  std::iota(text.begin(), text.end(), uint8_t{0});
  return Text(std::move(text));
}

Taken OfAllRanks(const Text& text, BatchPlan plan, uint64_t step, uint64_t micro_batch) {
  Taken taken;
  for (plan.rank = 0; plan.rank < plan.world_size; ++plan.rank) {
    auto batches = Batches::Create(TokenRange::All(text), plan);
    const MicroBatch batch = *batches->Get(step, micro_batch);
    taken.tokens.insert(taken.tokens.end(), batch.tokens.begin(), batch.tokens.end());
    taken.targets.insert(taken.targets.end(), batch.targets.begin(), batch.targets.end());
  }
  return taken;
}

TEST(MaskedBatches, OfAnyNumberOfRanksAndMicroBatches_AreTheSame) {
  const Text text = Counting();
  const Taken one = OfAllRanks(text, Plan(), 7, 2);
  for (const uint64_t ranks : {2, 4, 8}) {
    BatchPlan plan = Plan();
    plan.world_size = ranks;
    const Taken some = OfAllRanks(text, plan, 7, 2);
    EXPECT_EQ(some.tokens, one.tokens);
    EXPECT_EQ(some.targets, one.targets);
  }
  BatchPlan halves = Plan();
  halves.batch = 4;
  halves.accumulate = 6;
  Taken both = OfAllRanks(text, halves, 7, 4);
  const Taken second = OfAllRanks(text, halves, 7, 5);
  both.targets.insert(both.targets.end(), second.targets.begin(), second.targets.end());
  EXPECT_EQ(both.targets, one.targets);
}

TEST(MaskedBatches, OfPiecesOfSequences_AreTheWholeSequencesPieceByPiece) {
  const Text text = Counting();
  const Taken whole = OfAllRanks(text, Plan(), 3, 0);
  BatchPlan plan = Plan();
  plan.pieces = 4;
  for (plan.piece = 0; plan.piece < plan.pieces; ++plan.piece) {
    auto batches = Batches::Create(TokenRange::All(text), plan);
    const MicroBatch piece = *batches->Get(3, 0);
    EXPECT_EQ(batches->targets_per_micro_batch(), 8 * 2 / 4.0);
    for (size_t s = 0; s < 8; ++s) {
      const size_t at = s * kContext + plan.piece * 4;
      EXPECT_THAT(piece.targets.subspan(4 * s, 4),
                  ElementsAreArray(whole.targets.begin() + static_cast<ptrdiff_t>(at),
                                   whole.targets.begin() + static_cast<ptrdiff_t>(at + 4)));
    }
  }
}

TEST(MaskedBatches, ThatAreMeasured_AreTheSameWithEverySeed) {
  const Text text = Counting();
  BatchPlan other = Plan();
  other.seed = 6;
  auto one = Batches::Create(TokenRange::All(text), Plan());
  auto two = Batches::Create(TokenRange::All(text), other);
  const MicroBatch a = *one->GetEven(1, 3), b = *two->GetEven(1, 3);
  EXPECT_THAT(a.targets, ElementsAreArray(b.targets));
  EXPECT_THAT(a.tokens, ElementsAreArray(b.tokens));
  EXPECT_EQ(one->targets_per_sequence(), 2u);
}

}  // namespace
}  // namespace geminid::trainer
