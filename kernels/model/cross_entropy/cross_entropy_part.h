// The cross-entropy (cross_entropy.h) of logits whose columns are sharded over ranks: one rank's
// contribution to each token's numbers, and the gradient of its columns. fp32.
//
//   max[t] = largest logit                               then the largest over the ranks
//   sums[t] = sum_v exp(logits[t,v] - max[t])            then added over the ranks
//   at_target[t] = logits[t,targets[t]]                  then added over the ranks
//   loss[t] = log(sums[t]) + max[t] - at_target[t]
#ifndef GEMINID_KERNELS_MODEL_CROSS_ENTROPY_CROSS_ENTROPY_PART_H_
#define GEMINID_KERNELS_MODEL_CROSS_ENTROPY_CROSS_ENTROPY_PART_H_

#include <cstddef>
#include <cstdint>

#include "kernels/runtime/common/status.h"

namespace geminid::kernels {

struct CrossEntropyPart {
  size_t tokens = 0;
  size_t columns = 0;       // of this part; the first is column `first_column` of the vocabulary
  size_t first_column = 0;  // targets in other columns belong to other parts
  size_t row_stride = 0;    // elements between rows; columns beyond `columns` get gradient 0
};

// Writes each token's largest logit; minus infinity where the part has no columns.
Status CrossEntropyPartMax(const CrossEntropyPart& part, const float* logits, float* max);

// `at_target` is 0 where the target lies in another part, or is ignored.
Status CrossEntropyPartSums(const CrossEntropyPart& part, const float* logits,
                            const int32_t* targets, const float* max, float* sums,
                            float* at_target);

// `max` and `sums` are those over all ranks. `dlogits` may be `logits`.
Status CrossEntropyPartGradient(const CrossEntropyPart& part, const float* logits,
                                const int32_t* targets, const float* max, const float* sums,
                                float grad_scale, float* dlogits);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_CROSS_ENTROPY_CROSS_ENTROPY_PART_H_
