// Argument checks of MergeAttention. Internal to it.
#ifndef GEMINID_KERNELS_MODEL_ATTENTION_MERGE_CHECKS_H_
#define GEMINID_KERNELS_MODEL_ATTENTION_MERGE_CHECKS_H_

#include "kernels/model/attention/merge_attention.h"
#include "kernels/runtime/simd/arguments.h"

namespace geminid::kernels {

inline Status CheckMerge(const MergeShape& shape, const float* other, const float* other_lse,
                         const float* out, const float* lse) {
  size_t rows = 0, count = 0;
  Status status = CheckedProduct(shape.tokens, shape.heads, &rows);
  if (status == Status::kOk) status = CheckedProduct(rows, shape.head_dim, &count);
  if (status != Status::kOk) return status;
  return CheckBuffers({Buffer::Of(other, count), Buffer::Of(other_lse, rows)},
                      {Buffer::Of(out, count), Buffer::Of(lse, rows)});
}

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_ATTENTION_MERGE_CHECKS_H_
