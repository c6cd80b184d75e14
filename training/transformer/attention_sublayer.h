// The attention sublayer of a transformer layer: out = x + attention(norm(x)), or norm(x) +
// attention(norm(x)) (sublayer.h).
//
// The backward pass recomputes the values that are not kept, in the same tiles, so keeping them
// changes no bit. Both passes work on groups of heads: beyond the norm, a group's queries, keys,
// values and gradients need nothing from other groups. If the model norms each head of queries and
// keys (ModelConfig::norms_heads), all heads are one group, because they share the norm's gain.
//
// With groups of w columns the backward pass needs, beyond x and dx:
//   n and an fp32 gradient of n: 6 bytes per element of x in bf16
//   8 tokens w elements
//   the attention kernel's workspace
#ifndef GEMINID_TRAINING_TRANSFORMER_ATTENTION_SUBLAYER_H_
#define GEMINID_TRAINING_TRANSFORMER_ATTENTION_SUBLAYER_H_

#include <cmath>

#include "kernels/model/attention/attention.h"
#include "training/nn/blocks.h"
#include "training/nn/compute.h"
#include "training/transformer/sublayer.h"

namespace geminid::trainer {

// The attention of `kv_heads` of the model's key/value heads, and of the query heads that read
// them, over whole sequences.
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

// The values that the backward pass needs beyond x: queries, keys and values as the attention reads
// them, the attention's output, and its lse. Each is dense for each group, one group after another.
template <typename T>
struct AttentionActivations final : SublayerActivations {
  Scratch<T> qkv, attended;
  Scratch<float> lse;

  static absl::StatusOr<AttentionActivations> Allocate(const Resources& resources,
                                                       const SublayerContext& context);
};

// Fills `kept` unless it is null.
template <typename T>
absl::Status AttentionSublayerForward(const Resources& resources, const SublayerContext& context,
                                      const AttentionPlaces& places, const ParameterUse& use,
                                      const SublayerForward<T>& flow,
                                      const AttentionActivations<T>* kept);

// The KV cache of one layer: keys, as the attention reads them, and values, [tokens, key/value
// columns] each. The rows before context.positions are filled.
template <typename T>
struct LayerKeyValueCache {
  T* keys = nullptr;
  T* values = nullptr;
};

// The sublayer for the tokens of one sequence from context.positions.first on. Adds their keys and
// values to `cache`.
template <typename T>
absl::Status AttentionSublayerExtend(const Resources& resources, const SublayerContext& context,
                                     const AttentionPlaces& places, const ParameterUse& use,
                                     const SublayerForward<T>& flow,
                                     const LayerKeyValueCache<T>& cache);

// Also writes the gradients of all parameters of the sublayer. Recomputes what `kept` lacks.
template <typename T>
absl::Status AttentionSublayerBackward(const Resources& resources, const SublayerContext& context,
                                       const AttentionPlaces& places, ParameterUse& use,
                                       const SublayerBackward<T>& flow,
                                       const AttentionActivations<T>* kept);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_TRANSFORMER_ATTENTION_SUBLAYER_H_
