// The first half of a transformer layer: out = x + attention(norm(x)).
//
// Nothing but x is kept for the backward pass, which computes the rest again. Heads are worked on
// in groups, because each group's queries, keys, values and their gradients need the norm alone:
// with groups of w columns the backward pass needs, beyond x and dx, n and a fp32 gradient of n (6
// bytes per element of x in bf16), 8 tokens w elements, and the attention kernel's workspace.
#ifndef GEMINID_TOOLS_TRAINER_ATTENTION_HALF_H_
#define GEMINID_TOOLS_TRAINER_ATTENTION_HALF_H_

#include "tools/trainer/blocks.h"
#include "tools/trainer/compute.h"

namespace geminid::trainer {

template <typename T>
absl::Status AttentionHalfForward(zero::Workspace& workspace, const HalfContext& context,
                                  const AttentionPlaces& places, const ParameterUse& use,
                                  const T* x, T* out);

// `gradient` [tokens, hidden]: of `out` before, of `x` after. Writes the gradients of all
// parameters of the half.
template <typename T>
absl::Status AttentionHalfBackward(zero::Workspace& workspace, const HalfContext& context,
                                   const AttentionPlaces& places, ParameterUse& use, const T* x,
                                   T* gradient);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_ATTENTION_HALF_H_
