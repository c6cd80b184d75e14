// One row of a normalisation: its sums, and the gradients. Internal to the normalisations.
#if defined(GEMINID_KERNELS_MODEL_NORMALISATION_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GEMINID_KERNELS_MODEL_NORMALISATION_ROWS_INL_H_
#undef GEMINID_KERNELS_MODEL_NORMALISATION_ROWS_INL_H_
#else
#define GEMINID_KERNELS_MODEL_NORMALISATION_ROWS_INL_H_
#endif

#include "kernels/runtime/simd/f32x16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {

template <typename T>
HWY_INLINE float RowSum(const T* x, size_t cols) {
  F32x16 sum = Set(0.0F);
  for (size_t i = 0; i < cols; i += kWidth) sum = sum + LoadN(x + i, cols - i);
  return SumLanes(sum);
}

// Sum of (x - mean)^2.
template <typename T>
HWY_INLINE float RowSquares(const T* x, size_t cols, float mean) {
  const F32x16 center = Set(mean);
  F32x16 sum = Set(0.0F);
  for (size_t i = 0; i < cols; i += kWidth) {
    const F32x16 d = LoadN(x + i, cols - i, mean) - center;  // the fill adds 0
    sum = MulAdd(d, d, sum);
  }
  return SumLanes(sum);
}

template <typename T, typename P = T>
struct LayerNormRow {
  const T* dy;
  const T* x;
  const P* gamma;
  float mean;
  float rstd;

  HWY_INLINE F32x16 Xhat(size_t i, size_t n) const {
    return (LoadN(x + i, n, mean) - Set(mean)) * Set(rstd);
  }
  HWY_INLINE F32x16 Scaled(size_t i, size_t n) const {
    return LoadN(dy + i, n) * LoadN(gamma + i, n);
  }
};

// Adds dy xhat and dy of one row to the running sums.
template <typename T, typename P>
HWY_INLINE void AddParameterGradients(const LayerNormRow<T, P>& row, size_t cols, float* dgamma,
                                      float* dbeta) {
  for (size_t i = 0; i < cols; i += kWidth) {
    const size_t n = cols - i;
    const F32x16 dy = LoadN(row.dy + i, n);
    Store(MulAdd(dy, row.Xhat(i, n), Load(dgamma + i)), dgamma + i);
    Store(dy + Load(dbeta + i), dbeta + i);
  }
}

struct GradientSums {
  float g;   // of dy gamma
  float gx;  // of dy gamma xhat
};

template <typename T, typename P>
HWY_INLINE GradientSums SumGradients(const LayerNormRow<T, P>& row, size_t cols) {
  F32x16 sum_g = Set(0.0F);
  F32x16 sum_gx = Set(0.0F);
  for (size_t i = 0; i < cols; i += kWidth) {
    const size_t n = cols - i;
    const F32x16 g = row.Scaled(i, n);
    sum_g = sum_g + g;
    sum_gx = MulAdd(g, row.Xhat(i, n), sum_gx);
  }
  return {SumLanes(sum_g), SumLanes(sum_gx)};
}

// `means`: the sums over the whole row, divided by its columns.
template <typename T, typename P>
HWY_INLINE void WriteInputGradient(const LayerNormRow<T, P>& row, size_t cols, GradientSums means,
                                   const T* residual, T* dx) {
  const F32x16 mean_g = Set(means.g);
  const F32x16 mean_gx = Set(means.gx);
  for (size_t i = 0; i < cols; i += kWidth) {
    const size_t n = cols - i;
    F32x16 d = Set(row.rstd) * ((row.Scaled(i, n) - mean_g) - row.Xhat(i, n) * mean_gx);
    if (residual != nullptr) d = d + LoadN(residual + i, n);
    StoreN(d, dx + i, n);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#endif  // GEMINID_KERNELS_MODEL_NORMALISATION_ROWS_INL_H_
