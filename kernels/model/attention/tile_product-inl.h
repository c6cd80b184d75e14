// The matrix product inside attention: C[m,n] (+)= A[m,k] B[k,n] on fp32 blocks in cache. C and B
// are row-major. A is read with any pair of strides, so it may be a transpose.
//
// Each element of C is one chain of multiply-adds over increasing k, so tile sizes, which differ
// between instruction sets, do not change its bits. m is a multiple of 4, n of 16.
#if defined(GEMINID_KERNELS_MODEL_ATTENTION_TILE_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GEMINID_KERNELS_MODEL_ATTENTION_TILE_PRODUCT_INL_H_
#undef GEMINID_KERNELS_MODEL_ATTENTION_TILE_PRODUCT_INL_H_
#else
#define GEMINID_KERNELS_MODEL_ATTENTION_TILE_PRODUCT_INL_H_
#endif

#include "kernels/runtime/simd/f32x16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {

// Which elements of A are zero by causality and are skipped. Skipping exact zeros does not change
// the sums.
enum class Zeros : uint8_t { kNone, kAboveDiagonal, kBelowDiagonal };

struct Tiles {
  const float* a;
  size_t a_row_stride;
  size_t a_col_stride;
  const float* b;
  size_t b_stride;
  float* c;
  size_t c_stride;
  size_t m;
  size_t n;
  size_t k;
  Zeros zeros = Zeros::kNone;
  bool accumulate = false;
  size_t first_row = 0;  // of the triangle that kAboveDiagonal names
};

inline constexpr size_t kTileRows = 4;
// Vectors per tile row: 4 x 4 accumulators fill the 32 registers of AVX-512, 4 x 1 the 16 of AVX2.
inline constexpr size_t kTileVectors = kParts == 1 ? 4 : 1;

// Computes kVectors vectors of four rows of C, starting at (row, col).
template <size_t kVectors>
HWY_INLINE void ProductTile(const Tiles& t, size_t row, size_t col) {
  F32x16 sum[kTileRows][kVectors];
  float* c = t.c + row * t.c_stride + col;
  GEMINID_UNROLL
  for (size_t r = 0; r < kTileRows; ++r) {
    GEMINID_UNROLL
    for (size_t v = 0; v < kVectors; ++v) {
      sum[r][v] = t.accumulate ? Load(c + r * t.c_stride + v * kWidth) : Set(0.0F);
    }
  }
  const size_t begin = t.zeros == Zeros::kBelowDiagonal ? row : 0;
  const size_t end = t.zeros == Zeros::kAboveDiagonal ? t.first_row + row + kTileRows : t.k;
  const float* a = t.a + row * t.a_row_stride + begin * t.a_col_stride;
  const float* b = t.b + begin * t.b_stride + col;
  for (size_t k = begin; k < end; ++k) {
    F32x16 b_row[kVectors];
    GEMINID_UNROLL
    for (size_t v = 0; v < kVectors; ++v) b_row[v] = Load(b + v * kWidth);
    GEMINID_UNROLL
    for (size_t r = 0; r < kTileRows; ++r) {
      const F32x16 factor = Set(a[r * t.a_row_stride]);
      GEMINID_UNROLL
      for (size_t v = 0; v < kVectors; ++v) sum[r][v] = MulAdd(factor, b_row[v], sum[r][v]);
    }
    a += t.a_col_stride;
    b += t.b_stride;
  }
  GEMINID_UNROLL
  for (size_t r = 0; r < kTileRows; ++r) {
    GEMINID_UNROLL
    for (size_t v = 0; v < kVectors; ++v) Store(sum[r][v], c + r * t.c_stride + v * kWidth);
  }
}

// Not inlined, because its body is large and it has a dozen callers.
inline HWY_NOINLINE void Product(const Tiles& t) {
  constexpr size_t kTileCols = kTileVectors * kWidth;
  size_t col = 0;
  for (; col + kTileCols <= t.n; col += kTileCols) {
    for (size_t row = 0; row < t.m; row += kTileRows) ProductTile<kTileVectors>(t, row, col);
  }
  for (; col < t.n; col += kWidth) {
    for (size_t row = 0; row < t.m; row += kTileRows) ProductTile<1>(t, row, col);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#endif  // GEMINID_KERNELS_MODEL_ATTENTION_TILE_PRODUCT_INL_H_
