// What attention does with each head of queries and keys before it compares them: the norm of
// models that have one, and the turn by their positions. Internal to attention.
#ifndef GEMINID_TRAINING_TRANSFORMER_ATTENTION_HEADS_H_
#define GEMINID_TRAINING_TRANSFORMER_ATTENTION_HEADS_H_

#include <optional>

#include "base/status_macros.h"
#include "training/nn/blocks.h"
#include "training/nn/compute.h"
#include "training/transformer/norm_layer.h"

namespace geminid::trainer {

// Turns queries or keys by their positions, or gradients back. Without tables: nothing.
template <typename T>
absl::Status Rotate(const Resources& resources, const HalfContext& context, Turn turn,
                    Matrix<T> x) {
  if (context.rotary.cos == nullptr) return absl::OkStatus();
  const size_t head_dim = context.config->head_dim();
  const size_t length = context.shape.sequence_length;
  const kernels::RotaryShape shape = {.batch = context.shape.sequences,
                                      .sequence = length,
                                      .heads = x.cols / head_dim,
                                      .head_dim = head_dim,
                                      .token_stride = x.stride};
  return KernelsFor<T>(resources).Rotate(resources, turn, shape, context.rotary, x.data);
}

// Norms each head of queries or keys, which are dense, in place. Without a norm: nothing.
template <typename T>
absl::Status NormHeads(const Resources& resources, const HalfContext& context,
                       const std::optional<NormPlace>& place, const ParameterUse& use,
                       Matrix<T> x) {
  if (!place) return absl::OkStatus();
  const size_t head_dim = context.config->head_dim();
  GEMINID_ASSIGN_OR_RETURN(
      auto norm, NormLayer<T>::Create(resources, context, *place, x.size() / head_dim, head_dim));
  return norm.Forward(use, x.data, x.data);
}

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_TRANSFORMER_ATTENTION_HEADS_H_
