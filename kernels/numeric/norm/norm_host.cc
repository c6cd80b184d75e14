#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/numeric/norm/norm_host.cc"
#include <algorithm>
#include <cmath>
#include <limits>

#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/numeric/norm/block_tree.h"
#include "kernels/numeric/norm/norm.h"
#include "kernels/runtime/common/buffers.h"
#include "kernels/runtime/common/float_environment.h"
#include "kernels/runtime/simd/highway_limit.h"  // IWYU pragma: keep
#include "kernels/runtime/simd/lanes-inl.h"

// Sums must stay in registers: -O2 alone does not unroll loops over them. Not under the address
// sanitizer, whose checks of the unrolled loops take the compiler many minutes.
#undef GEMINID_UNROLL_ROW
#if defined(__SANITIZE_ADDRESS__)
#define GEMINID_UNROLL_ROW
#elif defined(__clang__)
#define GEMINID_UNROLL_ROW _Pragma("clang loop unroll(full)")
#else
#define GEMINID_UNROLL_ROW _Pragma("GCC unroll 16")
#endif

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {
namespace {

// How far ahead rows are prefetched: hardware prefetchers stop at the ends of pages.
constexpr size_t kNormPrefetchElements = 512;

// sum + Lanes(d) squares. A square is exact in float64, so fused or not the bits are the same.
template <class D, typename T, class V = hn::Vec<D>>
HWY_INLINE V AddLanes(D d, V sum, const T* values) {
  const hn::Rebind<float, D> df;
  const V x = hn::PromoteTo(d, LoadFloats(df, values));
  return hn::MulAdd(x, x, sum);
}

// Adds `rows` x kNormLanes squares to lanes[kNormLanes], which all stay in registers: enough chains
// of additions to hide the latency of each.
template <bool kPrefetch, typename T>
HWY_INLINE void AddRows(const T* values, size_t rows, double* lanes) {
  const hn::CappedTag<double, kNormLanes / 2> d;
  constexpr size_t kSumLanes = hn::MaxLanes(d);
  constexpr size_t kSums = kNormLanes / kSumLanes;
  hn::Vec<decltype(d)> sums[kSums];
  GEMINID_UNROLL_ROW
  for (size_t s = 0; s < kSums; ++s) sums[s] = hn::LoadU(d, lanes + s * kSumLanes);
  for (size_t r = 0; r < rows; ++r, values += kNormLanes) {
    if (kPrefetch) hwy::Prefetch(values + kNormPrefetchElements);
    GEMINID_UNROLL_ROW
    for (size_t s = 0; s < kSums; ++s) sums[s] = AddLanes(d, sums[s], values + s * kSumLanes);
  }
  GEMINID_UNROLL_ROW
  for (size_t s = 0; s < kSums; ++s) hn::StoreU(sums[s], d, lanes + s * kSumLanes);
}

template <typename T>
HWY_INLINE double BlockSum(const T* values, size_t count) {
  double lanes[kNormLanes] = {};
  const size_t rows = count / kNormLanes;
  AddRows<true>(values, rows, lanes);
  // Padding with zeros changes nothing: no lane is ever -0.
  if (const size_t rest = count % kNormLanes; rest != 0) {
    T row[kNormLanes] = {};
    std::copy_n(values + rows * kNormLanes, rest, row);
    AddRows<false>(row, 1, lanes);
  }
  for (size_t half = kNormLanes / 2; half != 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

template <typename T>
double Sum(const T* values, size_t count, double sum) {
  BlockTree tree(sum);
  for (size_t begin = 0; begin < count; begin += kNormBlock) {
    tree.Add(BlockSum(values + begin, HWY_MIN(kNormBlock, count - begin)));
  }
  return tree.Total();
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace geminid::kernels {
namespace {

template <typename T>
Status CheckAndAdd(const T* values, size_t count, SquareSum* total) {
  if (total == nullptr) return Status::kNullPointer;
  const Status status = CheckBuffer(Buffer::Of(values, count));
  if (status != Status::kOk || count == 0) return status;
  const ScopedFloatEnvironment environment;
  const double sum = GEMINID_KERNEL_LOOP(Sum<T>)(values, count, total->sum);
  total->sum = std::isnan(sum) ? std::numeric_limits<double>::quiet_NaN() : sum;
  return Status::kOk;
}

}  // namespace

Status AddSquares(const BFloat16* values, size_t count, SquareSum* total) {
  return CheckAndAdd(values, count, total);
}

Status AddSquares(const float* values, size_t count, SquareSum* total) {
  return CheckAndAdd(values, count, total);
}

}  // namespace geminid::kernels
#endif  // HWY_ONCE
