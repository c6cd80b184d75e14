#include "kernels/model/cross_entropy/cross_entropy.h"
#include "kernels/runtime/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/model/cross_entropy/cross_entropy_host.cc"
#include <algorithm>
#include <cmath>
#include <limits>

#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/model/cross_entropy/checks.h"
#include "kernels/runtime/common/float_environment.h"
#include "kernels/runtime/simd/arguments.h"
#include "kernels/runtime/simd/f32x16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {

// Columns that are summed in fp32 before they join the float64 total of a row.
constexpr size_t kSumBlock = 2048;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

template <typename T>
HWY_INLINE float RowMax(const T* row, size_t cols) {
  F32x16 best = Set(kMinusInfinity);
  for (size_t i = 0; i < cols; i += kWidth) {
    best = Max(best, LoadN(row + i, cols - i, kMinusInfinity));
  }
  return MaxLane(best);
}

// Sum of exp(x - max).
template <typename T>
HWY_INLINE double RowSumExp(const T* row, size_t cols, float max) {
  double total = 0;
  for (size_t begin = 0; begin < cols; begin += kSumBlock) {
    const size_t end = std::min(cols, begin + kSumBlock);
    F32x16 sum = Set(0.0F);
    for (size_t i = begin; i < end; i += kWidth) {
      sum = sum + Exp(LoadN(row + i, end - i, kMinusInfinity) - Set(max));
    }
    total += static_cast<double>(SumLanes(sum));
  }
  return total;
}

template <typename T>
HWY_INLINE void WriteZeros(T* out, size_t count) {
  for (size_t i = 0; i < count; i += kWidth) StoreN(Set(0.0F), out + i, count - i);
}

// out = grad_scale (exp(x - max) / sum - onehot). x and out may be the same row.
template <typename T>
HWY_INLINE void RowGradient(const T* row, size_t cols, float max, double sum, size_t target,
                            float grad_scale, T* out) {
  const double factor = static_cast<double>(grad_scale) / sum;
  const double at_target =
      static_cast<double>(grad_scale) *
      (std::exp(static_cast<double>(ToFloat(row[target])) - static_cast<double>(max)) / sum - 1.0);
  const F32x16 scale = Set(static_cast<float>(factor));
  for (size_t i = 0; i < cols; i += kWidth) {
    const size_t n = cols - i;
    StoreN(Exp(LoadN(row + i, n) - Set(max)) * scale, out + i, n);
  }
  out[target] = FromFloat<T>(static_cast<float>(at_target));
}

template <typename T>
HWY_INLINE void CrossEntropyLoop(const CrossEntropyShape& shape, const T* logits,
                                 const int32_t* targets, float grad_scale, T* dlogits,
                                 float* token_loss, CrossEntropyResult* result) {
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

void CrossEntropyFloat(const CrossEntropyShape& shape, const float* logits, const int32_t* targets,
                       float grad_scale, float* dlogits, float* token_loss,
                       CrossEntropyResult* result) {
  CrossEntropyLoop(shape, logits, targets, grad_scale, dlogits, token_loss, result);
}

void CrossEntropyBFloat16(const CrossEntropyShape& shape, const BFloat16* logits,
                          const int32_t* targets, float grad_scale, BFloat16* dlogits,
                          float* token_loss, CrossEntropyResult* result) {
  CrossEntropyLoop(shape, logits, targets, grad_scale, dlogits, token_loss, result);
}

}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace geminid::kernels {

GEMINID_KERNEL_EXPORT(CrossEntropy);

size_t CountTargets(const int32_t* targets, size_t tokens) {
  const auto ignored = std::count(targets, targets + tokens, kIgnoredTarget);
  return tokens - static_cast<size_t>(ignored);
}

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
  GEMINID_KERNEL_CALL(T, CrossEntropy, shape, logits, targets, grad_scale, dlogits, token_loss,
                      result);
  return Status::kOk;
}

template Status CrossEntropy(const CrossEntropyShape&, const float*, const int32_t*, float, float*,
                             float*, CrossEntropyResult*);
template Status CrossEntropy(const CrossEntropyShape&, const BFloat16*, const int32_t*, float,
                             BFloat16*, float*, CrossEntropyResult*);

}  // namespace geminid::kernels
#endif  // HWY_ONCE
