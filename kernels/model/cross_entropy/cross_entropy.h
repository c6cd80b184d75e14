// Softmax cross-entropy, loss and gradient in one pass over the logits:
//
//   loss[t] = log(sum_v exp(logits[t,v])) - logits[t,targets[t]]
//   dlogits[t,v] = grad_scale (softmax(logits[t])[v] - (v == targets[t]))
//
// A target of kIgnoredTarget has loss 0 and gradient 0 and is not counted. The caller computes the
// mean loss, loss_sum / counted, and may first sum both over ranks; grad_scale is then loss_scale /
// counted. T is float or BFloat16.
#ifndef GEMINID_KERNELS_MODEL_CROSS_ENTROPY_CROSS_ENTROPY_H_
#define GEMINID_KERNELS_MODEL_CROSS_ENTROPY_CROSS_ENTROPY_H_

#include <cstddef>
#include <cstdint>

#include "kernels/runtime/common/bfloat16.h"
#include "kernels/runtime/common/status.h"

namespace geminid::kernels {

inline constexpr int32_t kIgnoredTarget = -1;

struct CrossEntropyShape {
  size_t tokens = 0;
  size_t vocabulary = 0;
  size_t row_stride = 0;  // elements between rows; columns beyond `vocabulary` get gradient 0
};

struct CrossEntropyResult {
  double loss_sum = 0;  // summed in float64, in token order
  size_t counted = 0;   // targets that are not kIgnoredTarget
};

// `dlogits` may be `logits` (the usual case: it saves the largest activation of the model) or null
// (evaluation). `token_loss` [tokens] may be null. Rows are summed in fp32 in a fixed order. Fails
// before anything is written if a target is neither kIgnoredTarget nor in [0, vocabulary).
template <typename T>
Status CrossEntropy(const CrossEntropyShape& shape, const T* logits, const int32_t* targets,
                    float grad_scale, T* dlogits, float* token_loss, CrossEntropyResult* result);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_CROSS_ENTROPY_CROSS_ENTROPY_H_
