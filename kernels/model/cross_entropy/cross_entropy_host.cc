#include "kernels/model/cross_entropy/cross_entropy.h"
#include "kernels/runtime/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/model/cross_entropy/cross_entropy_host.cc"
#include <algorithm>
#include <cmath>

#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/model/cross_entropy/checks.h"
#include "kernels/model/cross_entropy/rows-inl.h"
#include "kernels/runtime/common/float_environment.h"
#include "kernels/runtime/simd/arguments.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {

template <typename T>
void CrossEntropyLoop(const CrossEntropyShape& shape, const T* logits, const int32_t* targets,
                      float grad_scale, T* dlogits, float* token_loss, CrossEntropyResult* result) {
  const size_t cols = shape.vocabulary;
  for (size_t t = 0; t < shape.tokens; ++t) {
    const T* row = logits + t * shape.row_stride;
    T* out = dlogits == nullptr ? nullptr : dlogits + t * shape.row_stride;
    double loss = 0;
    if (targets[t] == kIgnoredTarget) {
      if (out != nullptr) WriteZeros(out, cols);
    } else {
      const auto target = static_cast<size_t>(targets[t]);
      const float max = RowMax(row, cols);
      const double sum = RowSumExp(row, cols, max);
      loss = std::log(sum) + static_cast<double>(max) - static_cast<double>(ToFloat(row[target]));
      if (out != nullptr) RowGradient(row, cols, max, sum, target, grad_scale, out);
      result->loss_sum += loss;
      ++result->counted;
    }
    if (out != nullptr) WriteZeros(out + cols, shape.row_stride - cols);
    if (token_loss != nullptr) token_loss[t] = static_cast<float>(loss);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace geminid::kernels {

template <typename T>
Status CrossEntropy(const CrossEntropyShape& shape, const T* logits, const int32_t* targets,
                    float grad_scale, T* dlogits, float* token_loss, CrossEntropyResult* result) {
  const Status status =
      CheckCrossEntropy(shape, logits, targets, grad_scale, dlogits, token_loss, result);
  if (status != Status::kOk) return status;
  for (size_t t = 0; t < shape.tokens; ++t) {
    if (targets[t] == kIgnoredTarget) continue;
    if (targets[t] < 0 || static_cast<size_t>(targets[t]) >= shape.vocabulary) {
      return Status::kInvalidParameter;
    }
  }
  *result = {};
  const ScopedFloatEnvironment environment;
  GEMINID_KERNEL_LOOP(CrossEntropyLoop<T>)
  (shape, logits, targets, grad_scale, dlogits, token_loss, result);
  return Status::kOk;
}

template Status CrossEntropy(const CrossEntropyShape&, const float*, const int32_t*, float, float*,
                             float*, CrossEntropyResult*);
template Status CrossEntropy(const CrossEntropyShape&, const BFloat16*, const int32_t*, float,
                             BFloat16*, float*, CrossEntropyResult*);

}  // namespace geminid::kernels
#endif  // HWY_ONCE
