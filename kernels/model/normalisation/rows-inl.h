// One row of a normalisation: its sums, and the gradients. Internal to the normalisations.
#if defined(GEMINID_KERNELS_MODEL_NORMALISATION_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GEMINID_KERNELS_MODEL_NORMALISATION_ROWS_INL_H_
#undef GEMINID_KERNELS_MODEL_NORMALISATION_ROWS_INL_H_
#else
#define GEMINID_KERNELS_MODEL_NORMALISATION_ROWS_INL_H_
#endif

#include <algorithm>
#include <array>

#include "kernels/model/normalisation/row_order.h"
#include "kernels/runtime/simd/f32x16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {

// The sum of the `count` lanes of a row (row_order.h). Only the first `used` lanes are stored; the
// others count as 0.
HWY_INLINE float FoldLanes(float* lanes, size_t count, size_t used) {
  for (size_t half = count / 2; half >= kWidth; half /= 2) {
    for (size_t i = 0; i < std::min(used, half); i += kWidth) {
      const F32x16 other = i + half < used ? Load(lanes + i + half) : Set(0.0F);
      Store(Load(lanes + i) + other, lanes + i);
    }
    used = std::min(used, half);
  }
  return SumLanes(Load(lanes));
}

// kSums sums over a row: add(i, sums) adds 16 columns from i on to their lanes.
template <size_t kSums, class Add>
HWY_INLINE std::array<float, kSums> SumOfRow(size_t cols, const Add& add) {
  alignas(64) float lanes[kSums][kWideLanes];
  const size_t count = LanesOfRow(cols);
  size_t used = 0;
  for (; used < std::min(count, cols); used += kWidth) {
    F32x16 sums[kSums];
    for (F32x16& sum : sums) sum = Set(0.0F);
    for (size_t i = used; i < cols; i += count) add(i, sums);
    for (size_t s = 0; s < kSums; ++s) Store(sums[s], lanes[s] + used);
  }
  std::array<float, kSums> out;
  for (size_t s = 0; s < kSums; ++s) out[s] = FoldLanes(lanes[s], count, used);
  return out;
}

template <typename T>
HWY_INLINE float RowSum(const T* x, size_t cols) {
  return SumOfRow<1>(
      cols, [&](size_t i, F32x16* sums) { sums[0] = sums[0] + LoadN(x + i, cols - i); })[0];
}

// Sum of (x - mean)^2.
template <typename T>
HWY_INLINE float RowSquares(const T* x, size_t cols, float mean) {
  const F32x16 center = Set(mean);
  return SumOfRow<1>(cols, [&](size_t i, F32x16* sums) {
    const F32x16 d = LoadN(x + i, cols - i, mean) - center;  // the fill adds 0
    sums[0] = MulAdd(d, d, sums[0]);
  })[0];
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
  const auto [g, gx] = SumOfRow<2>(cols, [&](size_t i, F32x16* sums) {
    const size_t n = cols - i;
    const F32x16 scaled = row.Scaled(i, n);
    sums[0] = sums[0] + scaled;
    sums[1] = MulAdd(scaled, row.Xhat(i, n), sums[1]);
  });
  return {g, gx};
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
