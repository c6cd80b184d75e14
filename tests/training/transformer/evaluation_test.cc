// What the model computes outside training.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/training/models/dense_parameters.h"
#include "tests/training/models/reference_model.h"
#include "tests/training/models/tiny_models.h"
#include "training/transformer/transformer.h"

namespace geminid::trainer {
namespace {

using zero::DataType;

struct ModelCase {
  const char* name;
  ModelConfig config;
};

class Evaluation : public testing::TestWithParam<ModelCase> {
 protected:
  Evaluation() { Stir(parameters_); }

  const ModelConfig& config() const { return GetParam().config; }
  const std::unique_ptr<Transformer> model_ =
      MakeTransformer(config(), DataType::kFloat32, kFineTiling);
  DenseParameters parameters_ =
      DenseParameters(model_->parameters().specs, DataType::kFloat32, 1, kWorkspaceBytes);
};

TEST_P(Evaluation, Loss_IsTheReferencesAndThatOfTraining) {
  const Batch batch = RandomBatch(config(), {.sequences = 2, .sequence_length = 7}, 5);
  const auto loss = model_->Evaluate(parameters_, batch.view());
  ASSERT_TRUE(loss.ok()) << loss.status();
  const double reference = ReferenceLoss(config(), Named(*model_, parameters_), batch);
  EXPECT_NEAR(*loss, reference, 1e-5 * reference);
  for (const std::string& operation : parameters_.operations()) {
    EXPECT_THAT(operation, testing::StartsWith("forward"));
  }
  const auto trained = model_->TrainMicroBatch(parameters_, batch.view(), 1.0F);
  EXPECT_NEAR(*loss, *trained, 1e-6 * reference);
}

TEST_P(Evaluation, NextLogits_AreTheReferencesOfTheTokensSoFar) {
  for (const size_t length : {size_t{1}, size_t{4}, size_t{9}}) {
    const Batch batch = RandomBatch(config(), {.sequences = 1, .sequence_length = length}, length);
    const size_t last = length / 2;  // later tokens must not matter
    const auto logits = model_->NextLogits(parameters_, batch.tokens, last);
    ASSERT_TRUE(logits.ok()) << logits.status();
    const std::vector<double> expected = ReferenceLogits(
        config(), Named(*model_, parameters_),
        {batch.tokens.begin(), batch.tokens.begin() + static_cast<ptrdiff_t>(last) + 1})[last];
    ASSERT_EQ(logits->size(), expected.size());
    for (size_t v = 0; v < expected.size(); ++v) {
      EXPECT_NEAR((*logits)[v], expected[v], 2e-5 * (1 + std::abs(expected[v])));
    }
  }
}

TEST_P(Evaluation, NextLogitsOfRememberedTokens_HaveTheBitsOfAllComputedAgain) {
  for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
    const auto model = MakeTransformer(config(), type, kFineTiling);
    DenseParameters parameters(model->parameters().specs, type, 1, kWorkspaceBytes);
    Stir(parameters);
    const Batch batch = RandomBatch(config(), {.sequences = 1, .sequence_length = 9}, 3);
    const std::span<const int32_t> tokens = batch.tokens;
    for (const std::vector<size_t>& pieces :
         std::vector<std::vector<size_t>>{{9}, {4, 1, 1, 1, 2}, {1, 1, 1, 6}}) {
      auto cache = model->MakeKeyValueCache(parameters, 9);
      ASSERT_TRUE(cache.ok()) << cache.status();
      EXPECT_GE(parameters.workspace().in_use_bytes(), KeyValueCacheBytes(config(), type, 9));
      size_t done = 0;
      for (const size_t piece : pieces) {
        const auto more =
            model->NextLogits(parameters, tokens.subspan(done, piece), piece - 1, cache->get());
        ASSERT_TRUE(more.ok()) << more.status();
        done += piece;
        EXPECT_EQ((*cache)->count(), done);
        const auto again = model->NextLogits(parameters, tokens, done - 1);
        ASSERT_TRUE(again.ok());
        EXPECT_EQ(*more, *again) << done;
      }
      const auto beyond = model->NextLogits(parameters, tokens.subspan(0, 1), 0, cache->get());
      EXPECT_EQ(beyond.status().code(), absl::StatusCode::kInvalidArgument);
    }
    EXPECT_EQ(parameters.workspace().blocks(), 0u);
  }
}

TEST_P(Evaluation, OfMoreLayers_TakesNoMoreMemory) {
  const auto peak = [this](uint64_t layers) {
    ModelConfig deep = config();
    deep.layers = layers;
    const auto model = MakeTransformer(deep, DataType::kFloat32);
    DenseParameters parameters(model->parameters().specs, DataType::kFloat32, 1, kWorkspaceBytes);
    RouteEveryTokenToTheFirstExperts(*model, parameters);
    const Batch batch = RandomBatch(deep, {.sequences = 2, .sequence_length = 9}, 5);
    EXPECT_TRUE(model->Evaluate(parameters, batch.view()).ok());
    EXPECT_EQ(parameters.workspace().blocks(), 0u);
    return parameters.workspace().peak_bytes();
  };
  EXPECT_EQ(peak(2), peak(6));
}

TEST_P(Evaluation, BeyondTheContext_IsRefused) {
  const std::vector<int32_t> tokens(config().context + 1);
  EXPECT_EQ(model_->NextLogits(parameters_, tokens, 0).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(model_->NextLogits(parameters_, {}, 0).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(EvaluationOfAnEncoder, Loss_IsTheReferencesAndThatOfTraining) {
  const ModelConfig config = TinyBert();
  const auto model = MakeTransformer(config, DataType::kFloat32, kFineTiling);
  DenseParameters parameters(model->parameters().specs, DataType::kFloat32, 1, kWorkspaceBytes);
  Stir(parameters);
  const Batch batch = RandomBatch(config, {.sequences = 4, .sequence_length = 7}, 5);
  const auto loss = model->Evaluate(parameters, batch.view());
  ASSERT_TRUE(loss.ok()) << loss.status();
  const double reference = ReferenceLoss(config, Named(*model, parameters), batch);
  EXPECT_NEAR(*loss, reference, 1e-5 * reference);
  EXPECT_NEAR(*loss, *model->TrainMicroBatch(parameters, batch.view(), 1.0F), 1e-6 * reference);
}

INSTANTIATE_TEST_SUITE_P(
    Models, Evaluation,
    testing::Values(ModelCase{"gpt2", TinyGpt2()}, ModelCase{"gpt2_untied", Untied(TinyGpt2())},
                    ModelCase{"llama", TinyLlama()}, ModelCase{"llama_tied", Tied(TinyLlama())},
                    ModelCase{"opt", TinyOpt()}, ModelCase{"gpt_neox", TinyGptNeox()},
                    ModelCase{"gpt_neox_in_sequence", Tied(InSequence(TinyGptNeox()))},
                    ModelCase{"mistral", TinyMistral()}, ModelCase{"qwen2", TinyQwen2()},
                    ModelCase{"qwen3_tied", Tied(TinyQwen3())},
                    ModelCase{"qwen3_yarn",
                              WithScaledRotary(TinyQwen3(), RotaryScaling::Kind::kYarn)},
                    ModelCase{"mixtral", TinyMixtral()}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace geminid::trainer
