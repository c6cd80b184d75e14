// The second half of a transformer layer: out = x + mlp(norm(x)).
//
// Nothing but x is kept for the backward pass, which computes the rest again. The forward pass
// works on tiling.tokens rows at a time, the backward pass on tiling.mlp_columns columns of the MLP
// at a time, because each column's part in all gradients needs the norm alone: beyond x and dx it
// needs n, a fp32 gradient of n, and 3 (GELU) or 4 (SwiGLU) tokens x columns elements.
#ifndef GEMINID_TOOLS_TRAINER_MLP_HALF_H_
#define GEMINID_TOOLS_TRAINER_MLP_HALF_H_

#include "tools/trainer/blocks.h"
#include "tools/trainer/compute.h"

namespace geminid::trainer {

template <typename T>
absl::Status MlpHalfForward(zero::Workspace& workspace, const HalfContext& context,
                            const MlpPlaces& places, const ParameterUse& use, const T* x, T* out);

// `gradient` [tokens, hidden]: of `out` before, of `x` after. Writes the gradients of all
// parameters of the half.
template <typename T>
absl::Status MlpHalfBackward(zero::Workspace& workspace, const HalfContext& context,
                             const MlpPlaces& places, ParameterUse& use, const T* x, T* gradient);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_MLP_HALF_H_
