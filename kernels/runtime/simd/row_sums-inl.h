// fp32 rows in which gradients of parameters are summed before the one rounding to T. Such a row is
// padded to whole vectors (FloatRowBytes), so that its tail needs no special case.
#if defined(GEMINID_KERNELS_RUNTIME_SIMD_ROW_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GEMINID_KERNELS_RUNTIME_SIMD_ROW_SUMS_INL_H_
#undef GEMINID_KERNELS_RUNTIME_SIMD_ROW_SUMS_INL_H_
#else
#define GEMINID_KERNELS_RUNTIME_SIMD_ROW_SUMS_INL_H_
#endif

#include "kernels/runtime/simd/f32x16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {

HWY_INLINE void ZeroRow(float* row, size_t cols) {
  for (size_t i = 0; i < cols; i += kWidth) Store(Set(0.0F), row + i);
}

// out[0..cols) = row, or out + row, rounded to T.
template <typename T>
HWY_INLINE void FinishRow(const float* row, size_t cols, bool accumulate, T* out) {
  for (size_t i = 0; i < cols; i += kWidth) {
    const size_t n = cols - i;
    const F32x16 sum = Load(row + i);
    StoreN(accumulate ? LoadN(out + i, n) + sum : sum, out + i, n);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#endif  // GEMINID_KERNELS_RUNTIME_SIMD_ROW_SUMS_INL_H_
