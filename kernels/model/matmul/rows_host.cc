#include "kernels/model/matmul/rows.h"
#include "kernels/runtime/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/model/matmul/rows_host.cc"
#include <algorithm>
#include <utility>

#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/runtime/common/float_environment.h"
#include "kernels/runtime/parallel/tasks.h"
#include "kernels/runtime/simd/arguments.h"
#include "kernels/runtime/simd/f32x16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {

// Rows whose sums stay in registers: with AVX2 an F32x16 takes two of 16 registers.
inline constexpr size_t kRowsAtOnce = kParts == 1 ? 8 : 4;

// Columns [col, col + count) of `rows` rows, count <= 16. Each element is one chain of
// multiply-adds over increasing k.
template <size_t kRows, typename In>
HWY_INLINE void ChainTile(const MatmulShape& s, const In* a, const In* b, size_t count,
                          F32x16* sums) {
  F32x16 sum[kRows];
  GEMINID_UNROLL
  for (size_t r = 0; r < kRows; ++r) sum[r] = Set(0.0F);
  for (size_t k = 0; k < s.k; ++k) {
    const F32x16 values = LoadN(b + k * s.b_stride, count);
    GEMINID_UNROLL
    for (size_t r = 0; r < kRows; ++r) {
      sum[r] = MulAdd(Set(ToFloat(a[r * s.a_stride + k])), values, sum[r]);
    }
  }
  GEMINID_UNROLL
  for (size_t r = 0; r < kRows; ++r) sums[r] = sum[r];
}

// ChainTile for a transposed B: 16 chains over every 16th k, added in a fixed tree.
template <size_t kRows, typename In>
HWY_INLINE void DotTile(const MatmulShape& s, const In* a, const In* b, size_t count,
                        F32x16* sums) {
  alignas(64) float dots[kRows][kWidth] = {};
  for (size_t c = 0; c < count; ++c) {
    F32x16 sum[kRows];
    GEMINID_UNROLL
    for (size_t r = 0; r < kRows; ++r) sum[r] = Set(0.0F);
    const In* column = b + c * s.b_stride;
    for (size_t k = 0; k < s.k; k += kWidth) {
      const F32x16 values = LoadN(column + k, s.k - k);
      GEMINID_UNROLL
      for (size_t r = 0; r < kRows; ++r) {
        sum[r] = MulAdd(LoadN(a + r * s.a_stride + k, s.k - k), values, sum[r]);
      }
    }
    GEMINID_UNROLL
    for (size_t r = 0; r < kRows; ++r) dots[r][c] = SumLanes(sum[r]);
  }
  for (size_t r = 0; r < kRows; ++r) sums[r] = Load(dots[r]);
}

template <size_t kRows, typename In, typename Out>
HWY_NOINLINE void Tile(const MatmulShape& s, const In* a, const In* b, const Out* bias, Out* c,
                       size_t count) {
  F32x16 sums[kRows];
  if (s.transpose_b == Transpose::kYes) {
    DotTile<kRows>(s, a, b, count, sums);
  } else {
    ChainTile<kRows>(s, a, b, count, sums);
  }
  for (size_t r = 0; r < kRows; ++r) {
    Out* const row = c + r * s.c_stride;
    F32x16 sum = sums[r];
    if (s.bias) sum = sum + LoadN(bias, count);
    if (s.accumulate) sum = sum + LoadN(row, count);
    StoreN(sum, row, count);
  }
}

// Columns [first, last) of all rows.
template <class Types, typename In = typename Types::first_type,
          typename Out = typename Types::second_type>
void Columns(const MatmulShape& s, const In* a, const In* b, const Out* bias, Out* c, size_t first,
             size_t last) {
  for (size_t col = first; col < last; col += kWidth) {
    const size_t count = std::min(kWidth, last - col);
    const In* part = b + col * (s.transpose_b == Transpose::kYes ? s.b_stride : 1);
    const Out* addend = s.bias ? bias + col : nullptr;
    size_t row = 0;
    for (; row + kRowsAtOnce <= s.m; row += kRowsAtOnce) {
      Tile<kRowsAtOnce>(s, a + row * s.a_stride, part, addend, c + row * s.c_stride + col, count);
    }
    for (; row < s.m; ++row) {
      Tile<1>(s, a + row * s.a_stride, part, addend, c + row * s.c_stride + col, count);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace geminid::kernels {

namespace {

// Columns of a task: whole vectors, and enough that B's rows are read in long runs.
constexpr size_t kColumnsOfTask = 64;

}  // namespace

template <typename In, typename Out>
Status MatmulByRows(const MatmulShape& shape, const In* a, const In* b, const Out* bias, Out* c,
                    ThreadPool* pool) {
  MatmulShape s = shape;
  if (s.transpose_a == Transpose::kYes) return Status::kInvalidShape;
  if (s.m == 0 || s.n == 0 || s.k == 0) return Status::kInvalidShape;
  const bool transposed = s.transpose_b == Transpose::kYes;
  const size_t b_rows = transposed ? s.n : s.k, b_cols = transposed ? s.k : s.n;
  if (s.a_stride == 0) s.a_stride = s.k;
  if (s.b_stride == 0) s.b_stride = b_cols;
  if (s.c_stride == 0) s.c_stride = s.n;
  if (s.a_stride < s.k || s.b_stride < b_cols || s.c_stride < s.n) return Status::kInvalidShape;
  const Status status = CheckBuffers(
      {Buffer::Of(a, (s.m - 1) * s.a_stride + s.k),
       Buffer::Of(b, (b_rows - 1) * s.b_stride + b_cols), Buffer::Of(bias, s.bias ? s.n : 0)},
      {Buffer::Of(c, (s.m - 1) * s.c_stride + s.n)});
  if (status != Status::kOk) return status;
  return RunTasks(pool, GranuleCount(s.n, kColumnsOfTask), [&](size_t index, size_t) {
    const ScopedFloatEnvironment environment;
    const Granule part = GranuleAt(index, s.n, kColumnsOfTask);
    using Types = std::pair<In, Out>;
    GEMINID_KERNEL_LOOP(Columns<Types>)(s, a, b, bias, c, part.begin, part.end);
    return Status::kOk;
  });
}

template Status MatmulByRows(const MatmulShape&, const float*, const float*, const float*, float*,
                             ThreadPool*);
template Status MatmulByRows(const MatmulShape&, const BFloat16*, const BFloat16*, const BFloat16*,
                             BFloat16*, ThreadPool*);
template Status MatmulByRows(const MatmulShape&, const BFloat16*, const BFloat16*, const float*,
                             float*, ThreadPool*);

}  // namespace geminid::kernels
#endif  // HWY_ONCE
