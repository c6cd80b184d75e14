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

// UploadTokens for a masked language model, in which only some tokens have targets. Uploads these
// targets alone and fills `rows`. Without targets, the first token is uploaded with kNoTarget.
absl::StatusOr<Scratch<int32_t>> UploadChosen(const Resources& resources, const MicroBatch& batch,
                                              TargetRows* rows);

// x[t] = the row of tokens[t] (+ the row of its position, + the row of the first token type).
template <typename T>
absl::Status EmbeddingForward(const Resources& resources, const HalfContext& context,
                              const ModelParameters& parameters, const ParameterUse& use,
                              const int32_t* tokens, T* x);

// Writes the gradients of the tables, or adds to them.
template <typename T>
absl::Status EmbeddingBackward(const Resources& resources, const HalfContext& context,
                               const ModelParameters& parameters, ParameterUse& use,
                               const int32_t* tokens, const T* gradient);

// The sum of the cross-entropy of softmax(norm(x) W + b) with `targets`, over all tokens or over
// context.targets. With a prediction head (prediction_head.h), of softmax(head(norm(x)) W + b).
// Computes the gradients of gradient_scale times that sum: writes x's to `gradient`, and those of
// the parameters. Logits are fp32, tiling.tokens rows at a time.
template <typename T>
absl::StatusOr<double> OutputAndLoss(const Resources& resources, const HalfContext& context,
                                     const ModelParameters& parameters, ParameterUse& use,
                                     const T* x, const int32_t* targets, float gradient_scale,
                                     T* gradient);

// The same sum without gradients.
template <typename T>
absl::StatusOr<double> OutputLoss(const Resources& resources, const HalfContext& context,
                                  const ModelParameters& parameters, const ParameterUse& use,
                                  const T* x, const int32_t* targets);

// The logits of one token; `x` is its row.
template <typename T>
absl::Status LogitsOfToken(const Resources& resources, const HalfContext& context,
                           const ModelParameters& parameters, const ParameterUse& use, const T* x,
                           std::span<float> logits);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_TRANSFORMER_ENDS_H_
