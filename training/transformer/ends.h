// The first and the last operator of a model: the embedding, and the output layer with the loss.
#ifndef GEMINID_TRAINING_TRANSFORMER_ENDS_H_
#define GEMINID_TRAINING_TRANSFORMER_ENDS_H_

#include <cstdint>
#include <span>

#include "training/nn/blocks.h"
#include "training/nn/compute.h"
#include "training/nn/micro_batch.h"

namespace geminid::trainer {

// The tokens of a micro-batch and then their targets, where the model computes: with `layers`,
// which is nullable, as the rank's logits have them.
absl::StatusOr<Scratch<int32_t>> UploadTokens(const Resources& resources, LayerShare* layers,
                                              const MicroBatch& batch);

// The same of a masked language model: the targets of some tokens alone. Fills `rows`. Without any
// the first token has kNoTarget.
absl::StatusOr<Scratch<int32_t>> UploadChosen(const Resources& resources, const MicroBatch& batch,
                                              TargetRows* rows);

// x[t] = the row of tokens[t] (+ the row of its position, and of the first type of token).
template <typename T>
absl::Status EmbeddingForward(const Resources& resources, const HalfContext& context,
                              const ModelParameters& parameters, const ParameterUse& use,
                              const int32_t* tokens, T* x);

// Writes, or adds to, the gradients of the tables.
template <typename T>
absl::Status EmbeddingBackward(const Resources& resources, const HalfContext& context,
                               const ModelParameters& parameters, ParameterUse& use,
                               const int32_t* tokens, const T* gradient);

// The sum over the tokens, or context.targets, of the cross-entropy of softmax(norm(x) W + b) with
// `targets`, or of softmax(head(norm(x)) W + b) (prediction_head.h). Writes the
// gradients of gradient_scale times that sum: of x to `gradient`, and of the parameters. Logits are
// fp32, tiling.tokens rows at a time.
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

// The logits at one token, whose row of x it is.
template <typename T>
absl::Status LogitsOfToken(const Resources& resources, const HalfContext& context,
                           const ModelParameters& parameters, const ParameterUse& use, const T* x,
                           std::span<float> logits);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_TRANSFORMER_ENDS_H_
