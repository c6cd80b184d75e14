// Models so small that a float64 reference can compute every number of theirs.
#ifndef GEMINID_TESTS_TRAINING_MODELS_TINY_MODELS_H_
#define GEMINID_TESTS_TRAINING_MODELS_TINY_MODELS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/counter_random.h"
#include "tests/training/models/dense_parameters.h"
#include "tests/training/models/reference_model.h"
#include "training/transformer/transformer.h"

namespace geminid::trainer {

inline constexpr uint64_t kWorkspaceBytes = 64 << 20;

inline ModelConfig TinyGpt2() {
  return {.family = Family::kGpt2,
          .layers = 2,
          .hidden = 24,
          .heads = 6,
          .kv_heads = 6,
          .intermediate = 40,
          .context = 9,
          .vocabulary = 17};
}

inline ModelConfig TinyOpt() {
  ModelConfig config = TinyGpt2();
  config.family = Family::kOpt;
  return config;
}

// The first half of each head rotates.
inline ModelConfig TinyGptNeox() {
  ModelConfig config = TinyGpt2();
  config.family = Family::kGptNeox;
  config.heads = config.kv_heads = 3;
  config.rotary_share = 0.5;
  return config;
}

// An encoder with norms after its sublayers, which predicts some of its tokens.
inline ModelConfig TinyBert() {
  ModelConfig config = TinyGpt2();
  config.family = Family::kBert;
  return config;
}

// An encoder of images of four patches, that classifies them.
inline ModelConfig TinyVit() {
  ModelConfig config = TinyGpt2();
  config.family = Family::kVit;
  config.image = ImageShape{.side = 6, .patch = 3, .channels = 2};
  config.context = config.image->tokens();
  config.vocabulary = 0;
  config.classes = 7;
  return config;
}

// The other half of what its configuration may say.
inline ModelConfig InSequence(ModelConfig gpt_neox) {
  gpt_neox.parallel_block = false;
  gpt_neox.attention_bias = false;
  gpt_neox.mlp_activation = Activation::kGelu;
  return gpt_neox;
}

inline ModelConfig TinyLlama() {
  return {.family = Family::kLlama,
          .layers = 2,
          .hidden = 24,
          .heads = 6,
          .kv_heads = 3,
          .intermediate = 40,
          .context = 9,
          .vocabulary = 17};
}

// Sequences are up to three windows long.
inline ModelConfig TinyMistral() {
  ModelConfig config = TinyLlama();
  config.family = Family::kMistral;
  config.window = 3;
  return config;
}

inline ModelConfig TinyQwen2() {
  ModelConfig config = TinyLlama();
  config.family = Family::kQwen2;
  return config;
}

// Heads that are wider in total than the residual stream.
inline ModelConfig TinyQwen3() {
  ModelConfig config = TinyLlama();
  config.family = Family::kQwen3;
  config.head_width = 6;
  return config;
}

inline ModelConfig WithAttentionBias(ModelConfig config) {
  config.attention_bias = true;
  return config;
}

// Four pairs: the first one turns fast and the last one slowly.
inline ModelConfig WithScaledRotary(ModelConfig config, RotaryScaling::Kind kind) {
  config.head_width = 8;
  config.rotary_theta = 100;
  config.rotary_scaling = {.kind = kind, .factor = 4, .original_positions = 64};
  if (kind != RotaryScaling::Kind::kYarn) return config;
  config.rotary_scaling.beta_fast = 4;
  config.rotary_scaling.attention_factor = YarnAttentionFactor(4, 0, 0);
  return config;
}

// More experts than some sequences use.
inline ModelConfig TinyMixtral() {
  ModelConfig config = TinyLlama();
  config.family = Family::kMixtral;
  config.experts = 5;
  config.experts_per_token = 2;
  config.balance_loss = 0.3;
  return config;
}

// Experts with less capacity than an even share, so that some tokens are dropped.
inline ModelConfig WithCapacity(ModelConfig config) {
  config.expert_capacity = 0.7;
  return config;
}

// The gradient is that of the loss alone.
inline ModelConfig WithoutBalance(ModelConfig config) {
  config.balance_loss = 0;
  return config;
}

inline ModelConfig Tied(ModelConfig config) {
  config.tied = true;
  return config;
}

inline ModelConfig Untied(ModelConfig config) {
  config.tied = false;
  return config;
}

inline ModelConfig WithFp32Norms(ModelConfig config) {
  config.fp32_norms = true;
  return config;
}

// Divides everything that can be divided, into sizes that do not divide evenly.
inline constexpr Tiling kFineTiling = {.attention_columns = 16, .mlp_columns = 12, .tokens = 5};

struct Batch {
  MicroBatchShape shape;
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;
  std::vector<float> patches = {};  // of images
  MicroBatch view() const {
    return {.shape = shape, .tokens = tokens, .targets = targets, .patches = patches};
  }
};

// As many images as there would be sequences.
inline Batch RandomImages(const ModelConfig& config, size_t images, uint64_t seed) {
  const ImageShape& image = *config.image;
  Batch batch{.shape = {.sequences = images, .sequence_length = image.tokens()},
              .tokens = {},
              .targets = {}};
  for (size_t i = 0; i < images; ++i) {
    batch.targets.push_back(static_cast<int32_t>(base::RandomBits(seed, i) % config.classes));
    batch.targets.resize(batch.targets.size() + image.patches(), kNoTarget);
  }
  for (size_t i = 0; i < images * image.patches() * image.patch_elements(); ++i) {
    const double value = base::UnitInterval(base::RandomBits(seed + 1, i));
    batch.patches.push_back(static_cast<float>(2 * value - 1));
  }
  return batch;
}

// Of a masked language model every third token has a target.
inline Batch RandomBatch(const ModelConfig& config, MicroBatchShape shape, uint64_t seed) {
  if (config.image) return RandomImages(config, shape.sequences, seed);
  Batch batch{.shape = shape, .tokens = {}, .targets = {}};
  for (uint64_t i = 0; i < shape.tokens(); ++i) {
    batch.tokens.push_back(static_cast<int32_t>(base::RandomBits(seed, 2 * i) % config.vocabulary));
    batch.targets.push_back(
        static_cast<int32_t>(base::RandomBits(seed, 2 * i + 1) % config.vocabulary));
    if (config.masks() && i % 3 != 1) batch.targets.back() = kNoTarget;
  }
  return batch;
}

// Makes weights so large that every part of the model matters; gains are not 1 and biases not 0.
inline void Stir(DenseParameters& parameters) {
  for (size_t p = 0; p < parameters.count(); ++p) {
    for (size_t i = 0; i < parameters.values(p).size(); ++i) {
      const double noise = base::UnitInterval(base::RandomBits(77 + p, i)) - 0.5;
      float& value = parameters.values(p)[i];
      value = static_cast<float>((value == 1.0F ? 1.0 : 0.0) + 0.8 * noise);
    }
  }
}

// With a router of zeros each token chooses the first experts, in every layer. Otherwise rounding,
// which depends on the processor, would decide between nearly equal logits. Then the largest load
// of an expert, and with it the peak of the workspace, would depend on the processor, too.
inline void RouteEveryTokenToTheFirstExperts(const Transformer& model,
                                             DenseParameters& parameters) {
  for (size_t p = 0; p < parameters.count(); ++p) {
    if (!model.parameters().specs[p].name.ends_with(".block_sparse_moe.gate.weight")) continue;
    std::ranges::fill(parameters.values(p), 0.0F);
  }
}

inline NamedTensors Named(const Transformer& model, DenseParameters& parameters) {
  NamedTensors named;
  for (size_t p = 0; p < parameters.count(); ++p) {
    named[model.parameters().specs[p].name] = {parameters.values(p).begin(),
                                               parameters.values(p).end()};
  }
  return named;
}

// Of images without tokens their numbers, at the token that has the target.
inline std::vector<std::vector<int32_t>> Sequences(const MicroBatchShape& shape,
                                                   std::vector<int32_t> tokens) {
  if (tokens.empty()) {
    tokens.resize(shape.tokens());
    for (size_t i = 0; i < shape.sequences; ++i) {
      tokens[i * shape.sequence_length] = static_cast<int32_t>(i);
    }
  }
  std::vector<std::vector<int32_t>> sequences;
  for (size_t s = 0; s < shape.sequences; ++s) {
    const auto first = tokens.begin() + static_cast<ptrdiff_t>(s * shape.sequence_length);
    sequences.emplace_back(first, first + static_cast<ptrdiff_t>(shape.sequence_length));
  }
  return sequences;
}

// With what the model reads of the batch's images, under a name of its own.
inline NamedTensors WithPatches(NamedTensors named, const Batch& batch) {
  named[kPatches] = {batch.patches.begin(), batch.patches.end()};
  return named;
}

inline double ReferenceLoss(const ModelConfig& config, const NamedTensors& named,
                            const Batch& batch, const Factor& factor = {}) {
  return ReferenceLoss(config, WithPatches(named, batch), Sequences(batch.shape, batch.tokens),
                       Sequences(batch.shape, batch.targets), factor);
}

inline double ReferenceObjective(const ModelConfig& config, const NamedTensors& named,
                                 const Batch& batch, const Factor& factor = {}) {
  return ReferenceObjective(config, WithPatches(named, batch), Sequences(batch.shape, batch.tokens),
                            Sequences(batch.shape, batch.targets), factor);
}

}  // namespace geminid::trainer

#endif  // GEMINID_TESTS_TRAINING_MODELS_TINY_MODELS_H_
