// The first and the last operator of a model: the embedding, and the output layer with the loss.
#ifndef GEMINID_TRAINING_TRANSFORMER_ENDS_H_
#define GEMINID_TRAINING_TRANSFORMER_ENDS_H_

#include <cstdint>
#include <span>

#include "training/nn/blocks.h"
#include "training/nn/compute.h"
#include "training/nn/micro_batch.h"

namespace geminid::trainer {

// Uploads the tokens of a micro-batch, followed by their targets, to where the model computes. If
// `layers` is not null, converts the targets to the rank's own words.
absl::StatusOr<Scratch<int32_t>> UploadTokens(const Resources& resources, LayerShare* layers,
                                              const MicroBatch& batch);

// The same of a model that has targets of some tokens alone. Fills `rows`. Without any the first
// token has kNoTarget. Of images the tokens are the rows of the table that the embedding makes.
absl::StatusOr<Scratch<int32_t>> UploadChosen(const Resources& resources, const MicroBatch& batch,
                                              TargetRows* rows);

// The patches of a micro-batch of images, where the model computes.
template <typename T>
absl::StatusOr<Scratch<T>> UploadPatches(const Resources& resources, const MicroBatch& batch);

// What a model reads, where it computes.
template <typename T>
struct EmbeddingInput {
  const int32_t* tokens = nullptr;  // rows of the table
  const T* patches = nullptr;       // of images; else null
};

// x[t] = the row of tokens[t] (+ the row of its position, and of the first type of token). The
// table of images has a row for each of their patches, patch W + b, and behind them the class
// token.
template <typename T>
absl::Status EmbeddingForward(const Resources& resources, const SublayerContext& context,
                              const ModelParameters& parameters, const ParameterUse& use,
                              const EmbeddingInput<T>& input, T* x);

// Writes the gradients of the tables, or adds to them.
template <typename T>
absl::Status EmbeddingBackward(const Resources& resources, const SublayerContext& context,
                               const ModelParameters& parameters, ParameterUse& use,
                               const EmbeddingInput<T>& input, const T* gradient);

// The sum of the cross-entropy of softmax(norm(x) W + b) with `targets`, over all tokens or over
// context.targets. With a prediction head (prediction_head.h), of softmax(head(norm(x)) W + b).
// Computes the gradients of gradient_scale times that sum: writes x's to `gradient`, and those of
// the parameters. Logits are fp32, tiling.tokens rows at a time.
template <typename T>
absl::StatusOr<double> OutputAndLoss(const Resources& resources, const SublayerContext& context,
                                     const ModelParameters& parameters, ParameterUse& use,
                                     const T* x, const int32_t* targets, float gradient_scale,
                                     T* gradient);

// The same sum without gradients. Adds to context.targets.right, if it is there.
template <typename T>
absl::StatusOr<double> OutputLoss(const Resources& resources, const SublayerContext& context,
                                  const ModelParameters& parameters, const ParameterUse& use,
                                  const T* x, const int32_t* targets);

// The logits of one token; `x` is its row.
template <typename T>
absl::Status LogitsOfToken(const Resources& resources, const SublayerContext& context,
                           const ModelParameters& parameters, const ParameterUse& use, const T* x,
                           std::span<float> logits);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_TRANSFORMER_ENDS_H_
