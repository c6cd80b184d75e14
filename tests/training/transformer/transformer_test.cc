#include "training/transformer/transformer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "base/counter_random.h"
#include "kernels/model/matmul/matmul.h"
#include "kernels/optimizers/adamw/adamw.h"
#include "tests/training/models/dense_parameters.h"
#include "tests/training/models/reference_model.h"
#include "tests/training/models/tiny_models.h"

namespace geminid::trainer {
namespace {

using zero::DataType;

struct GradientCase {
  const char* name;
  ModelConfig config;
  Tiling tiling;
};

class TransformerGradient : public testing::TestWithParam<GradientCase> {
 protected:
  // The central difference of the float64 reference in one element.
  double Slope(NamedTensors& named, const std::string& name, size_t element, const Batch& batch) {
    constexpr double kStep = 1e-5;
    double& value = named[name][element];
    const double centre = value;
    value = centre + kStep;
    const double up = ReferenceObjective(GetParam().config, named, batch);
    value = centre - kStep;
    const double down = ReferenceObjective(GetParam().config, named, batch);
    value = centre;
    return (up - down) / (2 * kStep);
  }
};

TEST_P(TransformerGradient, InFp32_MatchesFiniteDifferencesOfAFloat64Reference) {
  const ModelConfig& config = GetParam().config;
  ASSERT_TRUE(Validate(config).ok()) << Validate(config);
  const auto model = MakeTransformer(config, DataType::kFloat32, GetParam().tiling);
  DenseParameters parameters(model->parameters().specs, DataType::kFloat32, 1, kWorkspaceBytes);
  Stir(parameters);
  const Batch batch = RandomBatch(config, {.sequences = 2, .sequence_length = 5}, 5);
  constexpr float kScale = 0.5F;
  const auto loss = model->TrainMicroBatch(parameters, batch.view(), kScale);
  ASSERT_TRUE(loss.ok()) << loss.status();

  NamedTensors named = Named(*model, parameters);
  const double reference_loss = ReferenceLoss(config, named, batch);
  EXPECT_NEAR(*loss, reference_loss, 1e-5 * reference_loss);

  constexpr size_t kElementsPerTensor = 6;
  for (size_t p = 0; p < parameters.count(); ++p) {
    const std::string& name = model->parameters().specs[p].name;
    const std::vector<double>& gradient = parameters.gradient(p);
    const size_t step = std::max<size_t>(1, gradient.size() / kElementsPerTensor);
    for (size_t i = p % step; i < gradient.size(); i += step) {
      const double expected = kScale * Slope(named, name, i, batch);
      ASSERT_NEAR(gradient[i], expected, 2e-5 + 2e-4 * std::abs(expected))
          << name << "[" << i << "]";
    }
  }
}

TEST_P(TransformerGradient, InFp32_MatchesTheReferenceAlongARandomDirection) {
  const ModelConfig& config = GetParam().config;
  const auto model = MakeTransformer(config, DataType::kFloat32, GetParam().tiling);
  DenseParameters parameters(model->parameters().specs, DataType::kFloat32, 1, kWorkspaceBytes);
  Stir(parameters);
  const Batch batch = RandomBatch(config, {.sequences = 3, .sequence_length = 9}, 6);
  ASSERT_TRUE(model->TrainMicroBatch(parameters, batch.view(), 1.0F).ok());

  const NamedTensors centre = Named(*model, parameters);
  for (uint64_t direction = 0; direction < 4; ++direction) {
    constexpr double kStep = 1e-6;
    NamedTensors up = centre, down = centre;
    double expected = 0;
    for (size_t p = 0; p < parameters.count(); ++p) {
      const std::string& name = model->parameters().specs[p].name;
      for (size_t i = 0; i < parameters.gradient(p).size(); ++i) {
        const double d = base::UnitInterval(base::RandomBits(1000 * direction + p, i)) - 0.5;
        up[name][i] += kStep * d;
        down[name][i] -= kStep * d;
        expected += parameters.gradient(p)[i] * d;
      }
    }
    const double slope =
        (ReferenceObjective(config, up, batch) - ReferenceObjective(config, down, batch)) /
        (2 * kStep);
    EXPECT_NEAR(slope, expected, 1e-3 + 1e-4 * std::abs(expected));
  }
}

TEST_P(TransformerGradient, InBf16_IsFiniteAndCloseToFp32) {
  const ModelConfig& config = GetParam().config;
  const Batch batch = RandomBatch(config, {.sequences = 2, .sequence_length = 9}, 7);
  const auto exact = MakeTransformer(config, DataType::kFloat32, GetParam().tiling);
  const auto rounded = MakeTransformer(config, DataType::kBFloat16, GetParam().tiling);
  DenseParameters fp32(exact->parameters().specs, DataType::kFloat32, 1, kWorkspaceBytes);
  DenseParameters bf16(exact->parameters().specs, DataType::kBFloat16, 1, kWorkspaceBytes);
  Stir(fp32);
  Stir(bf16);
  const auto exact_loss = exact->TrainMicroBatch(fp32, batch.view(), 1.0F);
  const auto rounded_loss = rounded->TrainMicroBatch(bf16, batch.view(), 1.0F);
  ASSERT_TRUE(exact_loss.ok()) << exact_loss.status();
  ASSERT_TRUE(rounded_loss.ok()) << rounded_loss.status();
  EXPECT_NEAR(*rounded_loss, *exact_loss, 0.02 * *exact_loss);
  // bf16 has 8 bits for every activation: each is off by up to 2^-9, and two layers with large
  // random weights amplify that. ReLU's derivative jumps if rounding changes a sign.
  const double relative_error = config.activation() == Activation::kRelu ? 0.15 : 0.08;
  for (size_t p = 0; p < fp32.count(); ++p) {
    // Without rotary positions, a bias of the keys adds the same to all scores of a query.
    const std::string& name = exact->parameters().specs[p].name;
    if (name.ends_with("k_proj.bias") && !config.rotary()) continue;
    if (name.ends_with("self.key.bias") || name.ends_with("attention.key.bias")) continue;
    double error = 0, norm = 0;
    for (size_t i = 0; i < fp32.gradient(p).size(); ++i) {
      const double difference = bf16.gradient(p)[i] - fp32.gradient(p)[i];
      ASSERT_TRUE(std::isfinite(bf16.gradient(p)[i]));
      error += difference * difference;
      norm += fp32.gradient(p)[i] * fp32.gradient(p)[i];
    }
    EXPECT_LE(std::sqrt(error), relative_error * std::sqrt(norm))
        << exact->parameters().specs[p].name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, TransformerGradient,
    testing::Values(
        GradientCase{"gpt2", TinyGpt2(), Tiling{}},
        GradientCase{"gpt2_in_pieces", TinyGpt2(), kFineTiling},
        GradientCase{"llama", TinyLlama(), Tiling{}},
        GradientCase{"llama_tied", Tied(TinyLlama()), Tiling{}},
        GradientCase{"gpt2_untied", Untied(TinyGpt2()), kFineTiling},
        GradientCase{"llama_in_pieces", TinyLlama(), kFineTiling},
        GradientCase{"gpt2_fp32_norms", WithFp32Norms(TinyGpt2()), kFineTiling},
        GradientCase{"llama_fp32_norms", WithFp32Norms(TinyLlama()), Tiling{}},
        GradientCase{"opt", TinyOpt(), Tiling{}},
        GradientCase{"opt_untied_in_pieces", Untied(TinyOpt()), kFineTiling},
        GradientCase{"gpt_neox", TinyGptNeox(), Tiling{}},
        GradientCase{"gpt_neox_in_pieces", TinyGptNeox(), kFineTiling},
        GradientCase{"gpt_neox_fp32_norms", WithFp32Norms(TinyGptNeox()), Tiling{}},
        GradientCase{"gpt_neox_in_sequence", Tied(InSequence(TinyGptNeox())), kFineTiling},
        GradientCase{"bert", TinyBert(), Tiling{}},
        GradientCase{"bert_in_pieces", TinyBert(), kFineTiling},
        GradientCase{"bert_untied_fp32_norms", WithFp32Norms(Untied(TinyBert())), kFineTiling},
        GradientCase{"vit", TinyVit(), Tiling{}},
        GradientCase{"vit_in_pieces", TinyVit(), kFineTiling},
        GradientCase{"vit_fp32_norms", WithFp32Norms(TinyVit()), kFineTiling},
        GradientCase{"mistral", TinyMistral(), Tiling{}},
        GradientCase{"mistral_in_pieces", TinyMistral(), kFineTiling},
        GradientCase{"qwen2", TinyQwen2(), Tiling{}},
        GradientCase{"qwen2_in_pieces", TinyQwen2(), kFineTiling},
        GradientCase{"qwen3", TinyQwen3(), Tiling{}},
        GradientCase{"qwen3_tied_in_pieces", Tied(TinyQwen3()), kFineTiling},
        GradientCase{"qwen3_fp32_norms", WithFp32Norms(TinyQwen3()), Tiling{}},
        GradientCase{"llama_biases", WithAttentionBias(TinyLlama()), kFineTiling},
        GradientCase{"llama_linear", WithScaledRotary(TinyLlama(), RotaryScaling::Kind::kLinear),
                     kFineTiling},
        GradientCase{"llama_llama3", WithScaledRotary(TinyLlama(), RotaryScaling::Kind::kLlama3),
                     Tiling{}},
        GradientCase{"qwen3_yarn", WithScaledRotary(TinyQwen3(), RotaryScaling::Kind::kYarn),
                     Tiling{}},
        GradientCase{"mixtral", TinyMixtral(), Tiling{}},
        GradientCase{"mixtral_tied_in_pieces", Tied(TinyMixtral()), kFineTiling},
        GradientCase{"mixtral_with_capacity", WithCapacity(TinyMixtral()), Tiling{}},
        GradientCase{"mixtral_fp32_norms", WithFp32Norms(TinyMixtral()), Tiling{}}),
    [](const auto& test) { return std::string(test.param.name); });

void AdamWStep(DenseParameters& parameters, std::vector<std::vector<float>>& m,
               std::vector<std::vector<float>>& v, uint64_t step) {
  m.resize(parameters.count());
  v.resize(parameters.count());
  for (size_t p = 0; p < parameters.count(); ++p) {
    std::vector<float>& w = parameters.values(p);
    m[p].resize(w.size());
    v[p].resize(w.size());
    const std::vector<float> gradient(parameters.gradient(p).begin(), parameters.gradient(p).end());
    ASSERT_EQ(kernels::AdamWMasterInPlace({.learning_rate = 4e-3, .step = step},
                                          {w.data(), m[p].data(), v[p].data()}, gradient.data(),
                                          w.size()),
              kernels::Status::kOk);
  }
  parameters.ClearGradients();
}

class TransformerTraining : public testing::TestWithParam<std::tuple<const char*, DataType>> {};

TEST_P(TransformerTraining, OnARepeatingText_LowersTheLossFromThatOfGuessing) {
  const auto config = FindPreset(std::get<0>(GetParam()));
  ASSERT_TRUE(config.ok());
  const auto model = MakeTransformer(*config, std::get<1>(GetParam()));
  DenseParameters parameters(model->parameters().specs, std::get<1>(GetParam()), 3,
                             kWorkspaceBytes);
  const MicroBatchShape shape = {.sequences = 1, .sequence_length = 32};
  const std::string text = "to be or not to be, ";
  Batch batch{.shape = shape, .tokens = {}, .targets = {}};
  for (size_t t = 0; t < shape.tokens(); ++t) {
    batch.tokens.push_back(text[t % text.size()]);
    batch.targets.push_back(text[(t + 1) % text.size()]);
  }
  std::vector<std::vector<float>> m, v;
  double first = 0, last = 0;
  constexpr uint64_t kSteps = 40;
  for (uint64_t step = 1; step <= kSteps; ++step) {
    const auto loss =
        model->TrainMicroBatch(parameters, batch.view(), 1.0F / static_cast<float>(shape.tokens()));
    ASSERT_TRUE(loss.ok()) << loss.status();
    last = *loss / static_cast<double>(shape.tokens());
    if (step == 1) first = last;
    AdamWStep(parameters, m, v, step);
  }
  EXPECT_NEAR(first, std::log(256.0), 0.3);
  EXPECT_LT(last, 2.0);
}

INSTANTIATE_TEST_SUITE_P(
    Models, TransformerTraining,
    testing::Combine(testing::Values("gpt2-tiny", "llama-tiny", "mistral-tiny", "qwen3-tiny",
                                     "mixtral-tiny", "pythia-tiny"),
                     testing::Values(DataType::kFloat32, DataType::kBFloat16)));

TEST(Transformer, EachHalf_IsOneOperationForwardAndOneBackward) {
  const auto model = MakeTransformer(TinyGpt2(), DataType::kFloat32);
  DenseParameters parameters(model->parameters().specs, DataType::kFloat32, 1, kWorkspaceBytes);
  const Batch batch = RandomBatch(TinyGpt2(), {.sequences = 1, .sequence_length = 4}, 5);
  ASSERT_TRUE(model->TrainMicroBatch(parameters, batch.view(), 1.0F).ok());
  EXPECT_THAT(parameters.operations(),
              testing::ElementsAre("forward 0 1", "forward 2 3 4 5 6 7", "forward 8 9 10 11 12 13",
                                   "forward 14 15 16 17 18 19", "forward 20 21 22 23 24 25",
                                   "backward 26 27 0", "backward 20 21 22 23 24 25",
                                   "backward 14 15 16 17 18 19", "backward 8 9 10 11 12 13",
                                   "backward 2 3 4 5 6 7", "backward 0 1"));
}

// Attention comes first, and on the way back the MLP, as without parallel blocks.
TEST(Transformer, OfParallelBlocks_HasTheOperationsOfHalves) {
  ModelConfig config = TinyGptNeox();
  config.layers = 1;
  const auto model = MakeTransformer(config, DataType::kFloat32);
  DenseParameters parameters(model->parameters().specs, DataType::kFloat32, 1, kWorkspaceBytes);
  const Batch batch = RandomBatch(config, {.sequences = 1, .sequence_length = 4}, 5);
  ASSERT_TRUE(model->TrainMicroBatch(parameters, batch.view(), 1.0F).ok());
  EXPECT_THAT(parameters.operations(),
              testing::ElementsAre("forward 0", "forward 1 2 3 4 5 6", "forward 7 8 9 10 11 12",
                                   "backward 13 14 15", "backward 7 8 9 10 11 12",
                                   "backward 1 2 3 4 5 6", "backward 0"));
}

// Plans assume that the order of operators does not depend on the tokens.
TEST(Transformer, OfExperts_UsesEachOfThemWithinTheirRouter_WhateverTheTokens) {
  ModelConfig config = TinyMixtral();
  config.layers = 1;
  const auto model = MakeTransformer(config, DataType::kFloat32);
  for (const uint64_t seed : {1, 2, 3}) {
    DenseParameters parameters(model->parameters().specs, DataType::kFloat32, 1, kWorkspaceBytes);
    Stir(parameters);
    const Batch batch = RandomBatch(config, {.sequences = 1, .sequence_length = 2}, seed);
    ASSERT_TRUE(model->TrainMicroBatch(parameters, batch.view(), 1.0F).ok());
    EXPECT_THAT(parameters.operations(),
                testing::ElementsAre("forward 0", "forward 1 2 3 4 5", "forward 6 7",
                                     "forward 8 9 10", "forward 11 12 13", "forward 14 15 16",
                                     "forward 17 18 19", "forward 20 21 22", "backward 23 24",
                                     "backward 6 7", "backward 8 9 10", "backward 11 12 13",
                                     "backward 14 15 16", "backward 17 18 19", "backward 20 21 22",
                                     "backward 1 2 3 4 5", "backward 0"));
  }
}

// Two tokens choose at most four of the five experts.
TEST(Transformer, ExpertsThatNoTokenChose_HaveGradientsOfZeros) {
  const ModelConfig config = TinyMixtral();
  for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
    for (const bool keeps : {false, true}) {
      const auto model = MakeTransformer(config, type);
      DenseParameters parameters(model->parameters().specs, type, 1, kWorkspaceBytes);
      Stir(parameters);
      const Batch batch = RandomBatch(config, {.sequences = 1, .sequence_length = 2}, 1);
      MicroBatch view = batch.view();
      view.keeps_activations = keeps;
      ASSERT_TRUE(model->TrainMicroBatch(parameters, view, 1.0F).ok());
      for (const RoutedPlaces& routed : model->parameters().routed) {
        size_t idle = 0;
        for (const ExpertPlaces& expert : routed.experts) {
          size_t zeros = 0;
          for (const ParameterId id : expert.all) {
            const std::vector<double>& gradient = parameters.gradient(static_cast<size_t>(id));
            zeros += std::ranges::all_of(gradient, [](double value) { return value == 0; });
          }
          EXPECT_TRUE(zeros == 0 || zeros == 3) << zeros;
          idle += zeros / 3;
        }
        EXPECT_GE(idle, 1u);
        EXPECT_LE(idle, 3u);
      }
    }
  }
}

TEST(Transformer, RunAgainElsewhereInMemory_GivesTheSameBits) {
  const auto model = MakeTransformer(TinyLlama(), DataType::kBFloat16);
  const Batch batch = RandomBatch(TinyLlama(), {.sequences = 2, .sequence_length = 9}, 7);
  std::vector<std::vector<double>> gradients[2];
  double losses[2];
  for (int run = 0; run < 2; ++run) {
    // Another capacity moves every block, because blocks are allocated from the top.
    DenseParameters parameters(model->parameters().specs, DataType::kBFloat16, 1,
                               kWorkspaceBytes - 64 * 5 * static_cast<uint64_t>(run));
    const auto loss = model->TrainMicroBatch(parameters, batch.view(), 1.0F);
    ASSERT_TRUE(loss.ok());
    losses[run] = *loss;
    for (size_t p = 0; p < parameters.count(); ++p) {
      gradients[run].push_back(parameters.gradient(p));
    }
  }
  EXPECT_EQ(std::bit_cast<uint64_t>(losses[0]), std::bit_cast<uint64_t>(losses[1]));
  EXPECT_EQ(gradients[0], gradients[1]);
}

ModelConfig WithAdapters(ModelConfig config) {
  config.lora_rank = 2;
  config.lora_alpha = 3;
  return config;
}

TEST(Transformer, ThatKeepsActivations_GivesTheBitsOfOneThatComputesThemAgain) {
  struct Case {
    ModelConfig config;
    Tiling tiling;
    double dropout;
  };
  for (const Case& c : {Case{TinyGpt2(), kFineTiling, 0},
                        Case{TinyLlama(), kFineTiling, 0},
                        Case{TinyGpt2(), Tiling{}, 0.25},
                        Case{Tied(TinyLlama()), Tiling{}, 0.25},
                        Case{WithFp32Norms(TinyGpt2()), kFineTiling, 0.25},
                        Case{WithFp32Norms(TinyLlama()), kFineTiling, 0},
                        Case{TinyMixtral(), kFineTiling, 0},
                        Case{TinyMixtral(), Tiling{}, 0.25},
                        Case{WithAdapters(TinyGpt2()), kFineTiling, 0.25},
                        Case{WithAdapters(TinyLlama()), kFineTiling, 0},
                        Case{TinyMistral(), kFineTiling, 0.25},
                        Case{TinyOpt(), kFineTiling, 0.25},
                        Case{TinyBert(), kFineTiling, 0.25},
                        Case{WithFp32Norms(TinyBert()), Tiling{}, 0},
                        Case{WithAdapters(TinyBert()), kFineTiling, 0},
                        Case{TinyVit(), kFineTiling, 0.25},
                        Case{WithFp32Norms(TinyVit()), Tiling{}, 0},
                        Case{TinyQwen2(), kFineTiling, 0},
                        Case{TinyQwen3(), kFineTiling, 0.25},
                        Case{WithFp32Norms(TinyQwen3()), Tiling{}, 0},
                        Case{WithAdapters(TinyQwen3()), Tiling{}, 0},
                        Case{TinyGptNeox(), kFineTiling, 0},
                        Case{TinyGptNeox(), Tiling{}, 0.25},
                        Case{WithFp32Norms(TinyGptNeox()), kFineTiling, 0.25},
                        Case{InSequence(TinyGptNeox()), kFineTiling, 0.25},
                        Case{WithAdapters(TinyGptNeox()), kFineTiling, 0.25}}) {
    for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
      const auto model = MakeTransformer(c.config, type, c.tiling);
      DenseParameters again(model->parameters().specs, type, 1, kWorkspaceBytes);
      DenseParameters kept(model->parameters().specs, type, 1, kWorkspaceBytes);
      Stir(again);
      Stir(kept);
      const Batch batch = RandomBatch(c.config, {.sequences = 2, .sequence_length = 9}, 7);
      MicroBatch view = batch.view();
      view.dropout = {.share = c.dropout, .seed = 3};
      const auto first = model->TrainMicroBatch(again, view, 1.0F);
      view.keeps_activations = true;
      const auto second = model->TrainMicroBatch(kept, view, 1.0F);
      ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
      EXPECT_EQ(std::bit_cast<uint64_t>(*first), std::bit_cast<uint64_t>(*second));
      for (size_t p = 0; p < again.count(); ++p) {
        ASSERT_EQ(again.gradient(p), kept.gradient(p)) << model->parameters().specs[p].name;
      }
      EXPECT_EQ(kept.workspace().blocks(), 0);
    }
  }
}

// A sequence of special tokens has no masked token, and a slice of a sequence may have none.
TEST(TransformerOfMaskedTokens, WithoutAny_HasNoLossAndGradientsOfZeros) {
  for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
    const auto model = MakeTransformer(TinyBert(), type);
    DenseParameters parameters(model->parameters().specs, type, 1, kWorkspaceBytes);
    Stir(parameters);
    Batch batch = RandomBatch(TinyBert(), {.sequences = 2, .sequence_length = 9}, 7);
    std::ranges::fill(batch.targets, kNoTarget);
    const auto loss = model->TrainMicroBatch(parameters, batch.view(), 1.0F);
    ASSERT_TRUE(loss.ok()) << loss.status();
    EXPECT_EQ(*loss, 0);
    for (size_t p = 0; p < parameters.count(); ++p) {
      EXPECT_TRUE(std::ranges::all_of(parameters.gradient(p), [](double value) {
        return value == 0;
      })) << model->parameters().specs[p].name;
    }
    EXPECT_EQ(*model->Evaluate(parameters, batch.view()), 0);
  }
}

TEST(TransformerOfMaskedTokens, ThatIsAnEncoder_SeesTheTokensAfterATokenAndWritesNoText) {
  const auto model = MakeTransformer(TinyBert(), DataType::kFloat32);
  DenseParameters parameters(model->parameters().specs, DataType::kFloat32, 1, kWorkspaceBytes);
  Stir(parameters);
  Batch batch = RandomBatch(TinyBert(), {.sequences = 1, .sequence_length = 9}, 7);
  std::ranges::fill(batch.targets, kNoTarget);
  batch.targets[0] = 3;
  const double loss = *model->Evaluate(parameters, batch.view());
  batch.tokens[8] = (batch.tokens[8] + 1) % 17;
  EXPECT_GT(std::abs(*model->Evaluate(parameters, batch.view()) - loss), 1e-4);
  EXPECT_EQ(model->NextLogits(parameters, batch.tokens, 0).status().code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_EQ(model->MakeKeyValueCache(parameters, 9).status().code(),
            absl::StatusCode::kUnimplemented);
}

bool IsBFloat16(double value) {
  return (std::bit_cast<uint32_t>(static_cast<float>(value)) & 0xFFFF) == 0;
}

TEST(Transformer, Fp32NormsBesideBf16Weights_HaveGradientsInFp32) {
  for (const bool fp32 : {false, true}) {
    ModelConfig config = TinyGpt2();
    config.fp32_norms = fp32;
    const auto model = MakeTransformer(config, DataType::kBFloat16);
    DenseParameters parameters(model->parameters().specs, DataType::kBFloat16, 1, kWorkspaceBytes);
    Stir(parameters);
    const Batch batch = RandomBatch(config, {.sequences = 2, .sequence_length = 9}, 7);
    ASSERT_TRUE(model->TrainMicroBatch(parameters, batch.view(), 1.0F).ok());
    for (size_t p = 0; p < parameters.count(); ++p) {
      const ParameterSpec& spec = model->parameters().specs[p];
      const bool norm = spec.name.find(".ln_") != std::string::npos;
      EXPECT_EQ(spec.data_type.has_value(), norm && fp32) << spec.name;
      const bool narrow = std::all_of(parameters.gradient(p).begin(), parameters.gradient(p).end(),
                                      [](double value) { return IsBFloat16(value); });
      EXPECT_EQ(narrow, !(norm && fp32)) << spec.name;
    }
  }
}

// In bf16 a gain of 1 + 2^-9 becomes 1. In fp32 it does not, so some of many products differ.
TEST(Transformer, Fp32NormsBesideBf16Weights_AreReadInFp32) {
  std::vector<double> losses[2];
  for (const bool fp32 : {false, true}) {
    for (const float excess : {0.0F, 0x1p-9F}) {
      ModelConfig config = TinyLlama();
      config.fp32_norms = fp32;
      const auto model = MakeTransformer(config, DataType::kBFloat16);
      DenseParameters parameters(model->parameters().specs, DataType::kBFloat16, 1,
                                 kWorkspaceBytes);
      Stir(parameters);
      for (size_t p = 0; p < parameters.count(); ++p) {
        if (model->parameters().specs[p].init != ParameterSpec::Init::kOnes) continue;
        for (float& gain : parameters.values(p)) gain = 1 + excess;
      }
      const Batch batch = RandomBatch(config, {.sequences = 2, .sequence_length = 9}, 7);
      const auto loss = model->TrainMicroBatch(parameters, batch.view(), 1.0F);
      ASSERT_TRUE(loss.ok()) << loss.status();
      losses[fp32 ? 1 : 0].push_back(*loss);
    }
  }
  EXPECT_EQ(losses[0][0], losses[0][1]);
  EXPECT_EQ(losses[0][0], losses[1][0]);
  EXPECT_NE(losses[1][0], losses[1][1]);
}

struct Peak {
  uint64_t bytes = 0;
  uint64_t bound = 0;
};

Peak MeasurePeak(const ModelConfig& config, MicroBatchShape shape, bool keeps = false) {
  const auto model = MakeTransformer(config, DataType::kBFloat16);
  DenseParameters parameters(model->parameters().specs, DataType::kBFloat16, 1, kWorkspaceBytes);
  RouteEveryTokenToTheFirstExperts(*model, parameters);
  const Batch batch = RandomBatch(config, shape, 5);
  MicroBatch view = batch.view();
  view.keeps_activations = keeps;
  const auto loss = model->TrainMicroBatch(parameters, view, 1.0F);
  EXPECT_TRUE(loss.ok()) << loss.status();
  EXPECT_EQ(parameters.workspace().blocks(), 0);
  return {parameters.workspace().peak_bytes(),
          WorkspaceBytesBound(config, DataType::kBFloat16, shape)};
}

TEST(TransformerMemory, WithMoreLayers_GrowsByTwoInputsPerLayer) {
  for (const char* name : {"gpt2-3m", "llama-3m", "qwen3-tiny", "mixtral-20m", "bert-tiny"}) {
    ModelConfig config = *FindPreset(name);
    const MicroBatchShape shape = {.sequences = 2, .sequence_length = 64};
    config.layers = 2;
    const Peak two = MeasurePeak(config, shape);
    config.layers = 5;
    const Peak five = MeasurePeak(config, shape);
    EXPECT_EQ(five.bytes - two.bytes, 3 * 2 * shape.tokens() * config.hidden * 2) << name;
  }
}

// Between the two sublayers of a parallel block nothing is stored or needed.
TEST(TransformerMemory, WithMoreParallelBlocks_GrowsByOneInputPerLayer) {
  ModelConfig config = *FindPreset("pythia-tiny");
  const MicroBatchShape shape = {.sequences = 2, .sequence_length = 64};
  for (const bool keeps : {false, true}) {
    std::vector<Peak> peaks;
    for (const uint64_t layers : {2, 5, 40}) {
      config.layers = layers;
      peaks.push_back(MeasurePeak(config, shape, keeps));
    }
    config.layers = 3;
    const uint64_t kept = keeps ? KeptBytes(config, DataType::kBFloat16, shape) : 0;
    EXPECT_EQ(peaks[1].bytes - peaks[0].bytes, 3 * shape.tokens() * config.hidden * 2 + kept);
    for (const Peak& peak : peaks) {
      if (!keeps) {
        EXPECT_LE(peak.bytes, peak.bound);
      }
    }
    if (!keeps) {
      EXPECT_GE(peaks[2].bytes, peaks[2].bound / 2);
    }
  }
}

TEST(TransformerMemory, WithMoreLayers_GrowsByTheKeptActivationsToo) {
  for (const char* name : {"gpt2-3m", "llama-3m", "mixtral-20m"}) {
    ModelConfig config = *FindPreset(name);
    const MicroBatchShape shape = {.sequences = 2, .sequence_length = 64};
    config.layers = 2;
    const uint64_t two = MeasurePeak(config, shape, /*keeps=*/true).bytes;
    config.layers = 5;
    const uint64_t five = MeasurePeak(config, shape, /*keeps=*/true).bytes;
    config.layers = 3;
    EXPECT_EQ(five - two, 3 * 2 * shape.tokens() * config.hidden * 2 +
                              KeptBytes(config, DataType::kBFloat16, shape))
        << name;
  }
}

TEST(TransformerMemory, OfAMicroBatchThatKeepsActivations_IsWithinItsBound) {
  for (const char* name : {"gpt2-3m", "llama-3m", "mistral-tiny", "qwen3-tiny", "mixtral-20m",
                           "pythia-tiny", "bert-tiny"}) {
    const ModelConfig config = *FindPreset(name);
    const MicroBatchShape shape = {.sequences = 2, .sequence_length = 64};
    const uint64_t kept = KeptBytes(config, DataType::kBFloat16, shape);
    const Peak peak = MeasurePeak(config, shape, /*keeps=*/true);
    EXPECT_LE(peak.bytes, peak.bound + kept) << name;
    EXPECT_GE(peak.bytes, kept) << name;
  }
}

TEST(TransformerMemory, ForTwentyMillionParameters_IsAFewMebibytes) {
  for (const char* name : {"gpt2-20m", "llama-20m"}) {
    ModelConfig config = *FindPreset(name);
    const MicroBatchShape shape = {.sequences = 1, .sequence_length = 256};
    // Measures two layers and adds the others as in the test above.
    const uint64_t layers = config.layers;
    config.layers = 2;
    Peak peak = MeasurePeak(config, shape);
    peak.bytes += (layers - config.layers) * 2 * shape.tokens() * config.hidden * 2;
    config.layers = layers;
    peak.bound = WorkspaceBytesBound(config, DataType::kBFloat16, shape);
    const uint64_t inputs = (2 * config.layers + 2) * shape.tokens() * config.hidden * 2;
    RecordProperty(name, std::to_string(peak.bytes));
    EXPECT_GE(peak.bytes, inputs);
    // Without bf16 instructions, the MLP's product needs fp32 copies of its largest matrices.
    const kernels::MatmulShape mlp = {
        .m = Tiling{}.tokens, .n = config.intermediate, .k = config.hidden};
    size_t copies = 0;
    ASSERT_EQ((kernels::MatmulWorkspaceBytes<kernels::BFloat16, kernels::BFloat16>(mlp, &copies)),
              kernels::Status::kOk);
    EXPECT_LE(peak.bytes, inputs + (4 << 20) + copies) << name;
    EXPECT_LE(peak.bytes, peak.bound) << name;
    EXPECT_GE(peak.bytes, peak.bound / 2) << name;
  }
}

TEST(Transformer, WithoutRoomForActivations_SaysSoAndReturnsEverything) {
  const auto model = MakeTransformer(TinyGpt2(), DataType::kFloat32);
  const Batch batch = RandomBatch(TinyGpt2(), {.sequences = 2, .sequence_length = 9}, 7);
  DenseParameters parameters(model->parameters().specs, DataType::kFloat32, 1, 8 << 10);
  const auto loss = model->TrainMicroBatch(parameters, batch.view(), 1.0F);
  EXPECT_EQ(loss.status().code(), absl::StatusCode::kResourceExhausted) << loss.status();
  EXPECT_EQ(parameters.workspace().in_use_bytes(), 0);
}

TEST(Transformer, GivenABatchThatDoesNotFitTheModel_Refuses) {
  const auto model = MakeTransformer(TinyGpt2(), DataType::kFloat32);
  DenseParameters parameters(model->parameters().specs, DataType::kFloat32, 1, kWorkspaceBytes);
  Batch batch = RandomBatch(TinyGpt2(), {.sequences = 1, .sequence_length = 10}, 7);
  EXPECT_EQ(model->TrainMicroBatch(parameters, batch.view(), 1.0F).status().code(),
            absl::StatusCode::kInvalidArgument);
  batch = RandomBatch(TinyGpt2(), {.sequences = 1, .sequence_length = 9}, 7);
  batch.targets.pop_back();
  EXPECT_EQ(model->TrainMicroBatch(parameters, batch.view(), 1.0F).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace geminid::trainer
