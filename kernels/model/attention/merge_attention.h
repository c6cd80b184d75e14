// Merges the attention of the same queries to two sets of keys, as if it had been computed over
// both sets at once. lse is the logarithm of the sum of the exponentials of a query's scores:
//
//   merged = log(exp(lse) + exp(other_lse))
//   out = exp(lse - merged) out + exp(other_lse - merged) other;  lse = merged
#ifndef GEMINID_KERNELS_MODEL_ATTENTION_MERGE_ATTENTION_H_
#define GEMINID_KERNELS_MODEL_ATTENTION_MERGE_ATTENTION_H_

#include <cstddef>

#include "kernels/runtime/common/status.h"

namespace geminid::kernels {

struct MergeShape {
  size_t tokens = 0;
  size_t heads = 0;
  size_t head_dim = 0;
};

// out, other [tokens, heads, head_dim]; lse, other_lse [heads, tokens], finite. The arrays are
// disjoint. Exponentials and the logarithm are computed in fp64.
Status MergeAttention(const MergeShape& shape, const float* other, const float* other_lse,
                      float* out, float* lse);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_ATTENTION_MERGE_ATTENTION_H_
