// The MLP sublayer of a transformer layer: out = x + mlp(norm(x)), or residual + mlp(norm(x))
// (sublayer.h).
//
// Both passes work on tiling.mlp_columns columns of the MLP at a time, because each column's part
// of the output and of all gradients needs only the norm. Beyond x and out (or dx) a pass needs n,
// an fp32 sum of [tokens, hidden], and 2 (GELU, forward) to 4 (SwiGLU, backward) tokens x columns
// elements. Both passes compute the activation's inputs in the same tiles, so keeping them changes
// no bit.
#ifndef GEMINID_TRAINING_TRANSFORMER_MLP_SUBLAYER_H_
#define GEMINID_TRAINING_TRANSFORMER_MLP_SUBLAYER_H_

#include "training/nn/blocks.h"
#include "training/nn/compute.h"
#include "training/transformer/mlp_columns.h"
#include "training/transformer/sublayer.h"

namespace geminid::trainer {

// The activation's inputs, [rows, intermediate], in dense groups of tiling.mlp_columns columns.
// Without a gate `up` is empty. Rows are tokens. With experts, the rows of one expert follow those
// of another, and a token has a row for each expert that computes it.
template <typename T>
struct MlpActivations final : SublayerActivations {
  Scratch<T> input, up;
  size_t width = 0;

  static absl::StatusOr<MlpActivations> Allocate(const Resources& resources,
                                                 const SublayerContext& context);
};
// The kept values of these rows; `kept` is nullable.
template <typename T>
MlpColumnActivations<T> RowsOf(const MlpActivations<T>* kept, size_t first, size_t rows);

// Fills `kept` unless it is null.
template <typename T>
absl::Status MlpSublayerForward(const Resources& resources, const SublayerContext& context,
                                const MlpPlaces& places, const ParameterUse& use,
                                const SublayerForward<T>& flow, const MlpActivations<T>* kept);

// Also writes the gradients of all parameters of the sublayer. If `kept` is null, recomputes the
// values; if not, overwrites them.
template <typename T>
absl::Status MlpSublayerBackward(const Resources& resources, const SublayerContext& context,
                                 const MlpPlaces& places, ParameterUse& use,
                                 const SublayerBackward<T>& flow, const MlpActivations<T>* kept);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_TRANSFORMER_MLP_SUBLAYER_H_
