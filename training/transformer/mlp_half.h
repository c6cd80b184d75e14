// The MLP sublayer of a transformer layer: out = x + mlp(norm(x)), or residual + mlp(norm(x))
// (sublayer.h).
//
// Both passes work on tiling.mlp_columns columns of the MLP at a time: each column's part in the
// output and in all gradients needs the norm alone. Beyond x and out (or dx) a pass needs n, a sum
// of [tokens, hidden] in fp32, and 2 (GELU, forward) to 4 (SwiGLU, backward) tokens x columns
// elements. What the activation reads is computed in the same pieces by both passes, so that
// keeping it changes no bit.
#ifndef GEMINID_TRAINING_TRANSFORMER_MLP_HALF_H_
#define GEMINID_TRAINING_TRANSFORMER_MLP_HALF_H_

#include "training/nn/blocks.h"
#include "training/nn/compute.h"
#include "training/transformer/mlp_columns.h"
#include "training/transformer/sublayer.h"

namespace geminid::trainer {

// What the activation reads, [rows, intermediate] in pieces of tiling.mlp_columns columns, each
// dense. `up` is empty without a gate. Rows are tokens, or with experts those of one after the
// other, each token as often as experts compute it.
template <typename T>
struct KeptMlp final : KeptSublayer {
  Scratch<T> input, up;
  size_t width = 0;

  static absl::StatusOr<KeptMlp> Allocate(const Resources& resources, const HalfContext& context);
};
// Of these rows; `kept` is nullable.
template <typename T>
KeptColumns<T> RowsOf(const KeptMlp<T>* kept, size_t first, size_t rows);

// Fills `kept` unless it is null.
template <typename T>
absl::Status MlpHalfForward(const Resources& resources, const HalfContext& context,
                            const MlpPlaces& places, const ParameterUse& use,
                            const SublayerForward<T>& flow, const KeptMlp<T>* kept);

// Writes the gradients of all parameters of the half, too. If `kept` is null, computes it again;
// if not, it is used up.
template <typename T>
absl::Status MlpHalfBackward(const Resources& resources, const HalfContext& context,
                             const MlpPlaces& places, ParameterUse& use,
                             const SublayerBackward<T>& flow, const KeptMlp<T>* kept);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_TRANSFORMER_MLP_HALF_H_
