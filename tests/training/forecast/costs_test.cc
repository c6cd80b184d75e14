#include "training/forecast/costs.h"

#include <gtest/gtest.h>

#include "training/forecast/catalogue.h"

namespace geminid::forecast {
namespace {

constexpr Batch kBatch = {.sequences = 3, .sequence_length = 512};

// Korthikanti et al. (arXiv:2205.05198, equation 1) count 34 s b h bytes for a GPT layer without
// the score matrix. 2 s b h of them are dropout masks, which this trainer does not store. They
// count neither statistics of norms nor sums of softmax.
TEST(SavedBytes, GptLayer_Is32PerTokenAndColumnAndStatistics) {
  const Model model = *FindModel("gpt2-xl");
  const std::uint64_t tokens = kBatch.tokens();
  const std::uint64_t saved = SavedBytes(model, Operator::kAttention, kBatch).bytes() +
                              SavedBytes(model, Operator::kMlp, kBatch).bytes();
  EXPECT_EQ(saved, 32 * tokens * model.hidden + 2 * 8 * tokens + 4 * tokens * model.heads);
}

// Per token and column: the input, queries, keys, values and attended values (10 bytes), and the
// input and the activation's inputs of four times as many columns (10 bytes).
TEST(TrainerSavedBytes, GptLayer_Is20PerTokenAndColumnAndTheSumsOfTheSoftmax) {
  const Model model = *FindModel("gpt2-xl");
  const std::uint64_t tokens = kBatch.tokens();
  const std::uint64_t saved = TrainerSavedBytes(model, Operator::kAttention, kBatch) +
                              TrainerSavedBytes(model, Operator::kMlp, kBatch);
  EXPECT_EQ(saved, 20 * tokens * model.hidden + 4 * tokens * model.heads);
}

TEST(SavedBytes, GroupedQueries_KeepFewerKeysAndValues) {
  Model model = *FindModel("llama-7b");
  const std::uint64_t all = SavedBytes(model, Operator::kAttention, kBatch).bytes();
  model.kv_heads = 8;
  const std::uint64_t grouped = SavedBytes(model, Operator::kAttention, kBatch).bytes();
  EXPECT_EQ(all - grouped, 2 * 2 * kBatch.tokens() * (32 - 8) * 128);
}

TEST(SavedBytes, NothingIsQuadraticInTheSequence) {
  const Model model = *FindModel("llama-7b");
  for (const Operator half : {Operator::kAttention, Operator::kMlp}) {
    const Saved whole = SavedBytes(model, half, {.sequences = 1, .sequence_length = 8192});
    const Saved parts = SavedBytes(model, half, {.sequences = 8, .sequence_length = 1024});
    EXPECT_EQ(whole.bytes(), parts.bytes());
    EXPECT_EQ(whole.input_bytes, 2u * 8192 * model.hidden);
  }
}

TEST(WorkspaceBytes, Logits_AreMadeInSlices) {
  const Model model = *FindModel("gpt2");
  const auto logits = [&](std::uint64_t tokens) {
    const Batch batch = {.sequences = 1, .sequence_length = tokens};
    return WorkspaceBytes(model, Operator::kOutput, PassDirection::kBackward, batch) -
           2 * 2 * tokens * model.hidden - 8 * tokens;
  };
  EXPECT_EQ(logits(100), 6u * 100 * model.vocabulary);
  EXPECT_EQ(logits(1024), 6u * 1024 * model.vocabulary);
  EXPECT_EQ(logits(65536), 6u * 1024 * model.vocabulary);
}

// A step takes 6 N operations per token for N multiplied parameters (arXiv:2001.08361, section 2.1)
// and 7 S q per layer for causal attention.
TEST(Operations, OfAStep_AreSixPerParameterAndTokenAndAttention) {
  const Model model = *FindModel("llama-7b");
  double sum = 0;
  for (std::uint64_t layer = 0; layer < model.layers; ++layer) {
    for (const PassDirection turn : {PassDirection::kForward, PassDirection::kBackward}) {
      sum += Operations(model, Operator::kAttention, turn, kBatch);
      sum += Operations(model, Operator::kMlp, turn, kBatch);
    }
  }
  sum += Operations(model, Operator::kOutput, PassDirection::kBackward, kBatch);
  const double norms = static_cast<double>((2 * model.layers + 1) * model.hidden);
  const double table = static_cast<double>(model.vocabulary * model.hidden);
  const double multiplied = static_cast<double>(CountParameters(model)) - norms - table;
  const double tokens = static_cast<double>(kBatch.tokens());
  const double attention = 7.0 * tokens * 512 * static_cast<double>(model.hidden * model.layers);
  EXPECT_DOUBLE_EQ(sum, 6 * tokens * multiplied + attention);
}

TEST(Operations, OfALookUp_AreNone) {
  EXPECT_EQ(Operations(*FindModel("gpt2"), Operator::kEmbedding, PassDirection::kForward, kBatch),
            0);
  // OPT-350M multiplies the rows of its narrow table by a matrix.
  EXPECT_EQ(
      Operations(*FindModel("opt-350m"), Operator::kEmbedding, PassDirection::kForward, kBatch),
      2.0 * 1536 * 512 * 1024);
}

TEST(Operations, OfExperts_AreOfThoseThatATokenVisits) {
  Model model = *FindModel("llama-7b");
  const double dense = Operations(model, Operator::kMlp, PassDirection::kForward, kBatch);
  model.experts = 8;
  model.experts_per_token = 2;
  const double router = 2.0 * 1536 * 8 * 4096;
  EXPECT_DOUBLE_EQ(Operations(model, Operator::kMlp, PassDirection::kForward, kBatch),
                   2 * dense + router);
}

TEST(SavedBytes, OfExperts_AreOfEachVisitAndTheCopiesOfItsRow) {
  Model model = *FindModel("llama-7b");
  const std::uint64_t dense = SavedBytes(model, Operator::kMlp, kBatch).bytes();
  model.experts = 8;
  model.experts_per_token = 2;
  const std::uint64_t tokens = kBatch.tokens();
  EXPECT_EQ(SavedBytes(model, Operator::kMlp, kBatch).bytes() - dense,
            2 * tokens * 3 * 11008 + 4 * tokens * 8 + 2 * 2 * 2 * tokens * 4096);
}

TEST(Operations, AttentionThatSeesTheWholeSequence_TakesTwiceTheCausal) {
  const Model model = *FindModel("llama-7b");
  const double matrices = 2.0 * 1536 * 4 * 4096 * 4096;
  const double causal =
      Operations(model, Operator::kAttention, PassDirection::kForward, kBatch) - matrices;
  EXPECT_DOUBLE_EQ(causal, 2.0 * 1536 * 512 * 4096);
  for (const Operator op : {Operator::kEncoderAttention, Operator::kCrossAttention}) {
    EXPECT_DOUBLE_EQ(Operations(model, op, PassDirection::kForward, kBatch) - matrices, 2 * causal);
  }
}

TEST(Operations, OfAClassifier_AreOfOneTokenOfEachSequence) {
  Model model = *FindModel("gpt2");
  model.forecast_only.head = Head::kClassifier;
  model.classes = 10;
  EXPECT_DOUBLE_EQ(Operations(model, Operator::kOutput, PassDirection::kBackward, kBatch),
                   6.0 * 3 * 768 * 10);
}

TEST(DeviceTraffic, OfMoreExpertsThanVisits_IsOfThoseVisited) {
  Model model = *FindModel("llama-7b");
  model.experts = 64;
  model.experts_per_token = 2;
  const Batch one = {.sequences = 1, .sequence_length = 1};
  const double weights = 2.0 * (2 * 3 * 4096 * 11008 + 64 * 4096);
  EXPECT_NEAR(DeviceTraffic(model, Operator::kMlp, PassDirection::kForward, one) / weights, 1,
              0.01);
}

TEST(DeviceTraffic, SmallBatches_AreBoundByReadingWeights) {
  const Model model = *FindModel("llama-7b");
  const Batch one = {.sequences = 1, .sequence_length = 1};
  const double weights = 2.0 * 3 * 4096 * 11008;
  const double traffic = DeviceTraffic(model, Operator::kMlp, PassDirection::kForward, one);
  EXPECT_GE(traffic, weights);
  EXPECT_LT(traffic, 1.01 * weights);
}

}  // namespace
}  // namespace geminid::forecast
