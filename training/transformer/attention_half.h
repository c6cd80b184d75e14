// The attention sublayer of a transformer layer: out = x + attention(norm(x)), or norm(x) +
// attention(norm(x)) (sublayer.h).
//
// The backward pass computes again what is not kept, in the same pieces, so that keeping it changes
// no bit. Heads are worked on in groups, because each group's queries, keys, values and their
// gradients need the norm alone: with groups of w columns the backward pass needs, beyond x and dx,
// n and a fp32 gradient of n (6 bytes per element of x in bf16), 8 tokens w elements, and the
// attention kernel's workspace. Where each head of queries and keys is normed
// (ModelConfig::norms_heads), all heads are one group: they share the norm's gain.
#ifndef GEMINID_TRAINING_TRANSFORMER_ATTENTION_HALF_H_
#define GEMINID_TRAINING_TRANSFORMER_ATTENTION_HALF_H_

#include <cmath>

#include "kernels/model/attention/attention.h"
#include "training/nn/blocks.h"
#include "training/nn/compute.h"
#include "training/transformer/sublayer.h"

namespace geminid::trainer {

// What `kv_heads` of the model's key/value heads, and the query heads that read them, make of whole
// sequences.
inline kernels::AttentionShape AttentionShapeOf(const ModelConfig& config,
                                                const MicroBatchShape& shape, size_t kv_heads) {
  return {.batch = shape.sequences,
          .sequence = shape.sequence_length,
          .heads = kv_heads * (config.heads / config.kv_heads),
          .kv_heads = kv_heads,
          .head_dim = config.head_dim(),
          .scale = 1.0F / std::sqrt(static_cast<float>(config.head_dim())),
          .window = config.attention_window(),
          .causal = !config.encodes()};
}

// What the backward pass needs beyond x, group after group, each dense: queries, keys and values as
// the attention takes them, what it gives, and its lse.
template <typename T>
struct KeptAttention final : KeptSublayer {
  Scratch<T> qkv, attended;
  Scratch<float> lse;

  static absl::StatusOr<KeptAttention> Allocate(const Resources& resources,
                                                const HalfContext& context);
};

// Fills `kept` unless it is null.
template <typename T>
absl::Status AttentionHalfForward(const Resources& resources, const HalfContext& context,
                                  const AttentionPlaces& places, const ParameterUse& use,
                                  const SublayerForward<T>& flow, const KeptAttention<T>* kept);

// Keys, as the attention takes them, and values of one layer: [tokens, key/value columns] each, of
// which those before context.positions are there.
template <typename T>
struct RememberedKeys {
  T* keys = nullptr;
  T* values = nullptr;
};

// The half for the tokens of one sequence from context.positions.first on; adds theirs to
// `remembered`.
template <typename T>
absl::Status AttentionHalfExtend(const Resources& resources, const HalfContext& context,
                                 const AttentionPlaces& places, const ParameterUse& use,
                                 const SublayerForward<T>& flow,
                                 const RememberedKeys<T>& remembered);

// Writes the gradients of all parameters of the half, too. Computes again what is not in `kept`.
template <typename T>
absl::Status AttentionHalfBackward(const Resources& resources, const HalfContext& context,
                                   const AttentionPlaces& places, ParameterUse& use,
                                   const SublayerBackward<T>& flow, const KeptAttention<T>* kept);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_TRANSFORMER_ATTENTION_HALF_H_
