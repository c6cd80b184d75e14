// One row of logits: its largest element, the sum of its exponentials, and its gradient. Internal
// to the cross-entropy.
#if defined(GEMINID_KERNELS_MODEL_CROSS_ENTROPY_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GEMINID_KERNELS_MODEL_CROSS_ENTROPY_ROWS_INL_H_
#undef GEMINID_KERNELS_MODEL_CROSS_ENTROPY_ROWS_INL_H_
#else
#define GEMINID_KERNELS_MODEL_CROSS_ENTROPY_ROWS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/runtime/simd/f32x16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {

// Columns that are summed in fp32 before their sum is added to the row's float64 total.
inline constexpr size_t kSumBlock = 2048;
inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

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

// out = grad_scale (exp(x - max) / sum - onehot). x and out may be the same row. A `target` of
// `cols` or more lies outside of the row.
template <typename T>
HWY_INLINE void RowGradient(const T* row, size_t cols, float max, double sum, size_t target,
                            float grad_scale, T* out) {
  const double factor = static_cast<double>(grad_scale) / sum;
  double at_target = 0;
  if (target < cols) {
    const double exponent = static_cast<double>(ToFloat(row[target])) - static_cast<double>(max);
    at_target = static_cast<double>(grad_scale) * (std::exp(exponent) / sum - 1.0);
  }
  const F32x16 scale = Set(static_cast<float>(factor));
  for (size_t i = 0; i < cols; i += kWidth) {
    const size_t n = cols - i;
    StoreN(Exp(LoadN(row + i, n) - Set(max)) * scale, out + i, n);
  }
  if (target < cols) out[target] = FromFloat<T>(static_cast<float>(at_target));
}

}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#endif  // GEMINID_KERNELS_MODEL_CROSS_ENTROPY_ROWS_INL_H_
