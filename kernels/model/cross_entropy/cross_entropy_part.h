// The cross-entropy (cross_entropy.h) of logits whose columns are cut over ranks: what a rank's
// columns give to the numbers of a token, and their gradient. fp32.
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
  size_t columns = 0;       // the part's, of which the first is `first_column` of the vocabulary
  size_t first_column = 0;  // targets of other columns are some other part's
  size_t row_stride = 0;    // elements between rows; columns beyond `columns` get gradient 0
};

// Minus infinity where the part has no columns.
Status CrossEntropyPartMax(const CrossEntropyPart& part, const float* logits, float* max);

// `at_target` is 0 where the target is another part's, or ignored.
Status CrossEntropyPartSums(const CrossEntropyPart& part, const float* logits,
                            const int32_t* targets, const float* max, float* sums,
                            float* at_target);

// `max` and `sums` of all ranks. `dlogits` may be `logits`.
Status CrossEntropyPartGradient(const CrossEntropyPart& part, const float* logits,
                                const int32_t* targets, const float* max, const float* sums,
                                float grad_scale, float* dlogits);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_CROSS_ENTROPY_CROSS_ENTROPY_PART_H_
