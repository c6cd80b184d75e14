#include "kernels/numeric/norm/cast_norm.h"
#include "kernels/runtime/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/numeric/norm/cast_norm_host.cc"
#include <algorithm>
#include <cmath>
#include <limits>

#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/numeric/norm/norm_rows.h"
#include "kernels/runtime/common/buffers.h"
#include "kernels/runtime/common/float_environment.h"
#include "kernels/runtime/simd/half_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {
namespace {

// Stores past the caches if `stream`, and if the lanes fill a vector: less cannot be streamed.
template <class D, typename T>
HWY_INLINE void Put(D d, hn::Vec<D> v, T* to, bool stream) {
  constexpr size_t kLeastVectorBytes = 16;
  if (hn::MaxLanes(d) * sizeof(T) >= kLeastVectorBytes && stream) {
    hn::Stream(v, d, to);
  } else {
    hn::StoreU(v, d, to);
  }
}

// Converts Lanes(d) elements and returns what was written, as fp32. `d` is a tag of float.
template <class D, typename Half>
HWY_INLINE hn::Vec<D> Convert(D d, const float* input, Half* output, bool stream) {
  const hn::Rebind<uint16_t, D> du16;
  const auto half = Narrowed(d, hn::LoadU(d, input), Half());
  Put(du16, half, Bits(output), stream);
  return Widened(d, half, Half());
}
template <class D, typename Half>
HWY_INLINE hn::Vec<D> Convert(D d, const Half* input, float* output, bool stream) {
  const auto value = LoadFloats(d, input);
  Put(d, value, output, stream);
  return value;
}

// Adds the squares of Lanes(d) values to as many float64 lanes, which are in two vectors (in one
// where vectors have one lane). Squares are exact in float64, so fused or not the bits are the
// same.
template <class D, class VD>
HWY_INLINE void AddLanes(D /* tag */, hn::Vec<D> v, VD* sums) {
#if HWY_TARGET == HWY_SCALAR
  const hn::Rebind<double, D> dd;
  const auto x = hn::PromoteTo(dd, v);
  sums[0] = hn::MulAdd(x, x, sums[0]);
#else
  const hn::Repartition<double, D> dd;
  const hn::Half<D> dh;
  const auto x0 = hn::PromoteTo(dd, hn::LowerHalf(dh, v));
  const auto x1 = hn::PromoteTo(dd, hn::UpperHalf(dh, v));
  sums[0] = hn::MulAdd(x0, x0, sums[0]);
  sums[1] = hn::MulAdd(x1, x1, sums[1]);
#endif
}

// Converts `rows` rows of kNormLanes elements and adds their squares to lanes[kNormLanes], as
// kernels/numeric/norm does.
template <bool kStream, typename In, typename Out>
HWY_INLINE void ConvertRows(const In* input, size_t rows, Out* output, double* lanes) {
  const hn::CappedTag<float, kNormLanes> d;
  constexpr size_t kLanes = hn::MaxLanes(d);
  const hn::CappedTag<double, HWY_MAX(kLanes / 2, 1)> dd;
  constexpr size_t kSumLanes = hn::MaxLanes(dd);
  constexpr size_t kSums = kNormLanes / kSumLanes;
  hn::Vec<decltype(dd)> sums[kSums];
  GEMINID_UNROLL_ROW
  for (size_t s = 0; s < kSums; ++s) sums[s] = hn::LoadU(dd, lanes + s * kSumLanes);
  for (size_t r = 0; r < rows; ++r, input += kNormLanes, output += kNormLanes) {
    if (kStream) hwy::Prefetch(input + kNormPrefetchElements);
    GEMINID_UNROLL_ROW
    for (size_t i = 0; i < kNormLanes; i += kLanes) {
      AddLanes(d, Convert(d, input + i, output + i, kStream), sums + i / kSumLanes);
    }
  }
  GEMINID_UNROLL_ROW
  for (size_t s = 0; s < kSums; ++s) hn::StoreU(sums[s], dd, lanes + s * kSumLanes);
}

// The bits of bf16 nearest to a number, in the upper halves of 32-bit lanes; the lower ones are
// noise.
template <class D, class DU32 = hn::RebindToUnsigned<D>>
HWY_INLINE hn::Vec<DU32> NearestBits(D /* tag */, hn::Vec<D> number) {
  const DU32 du32;
  const auto bits = hn::BitCast(du32, number);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du32, 1u));
  return hn::Add(hn::Add(bits, hn::Set(du32, 0x7FFFu)), odd);
}

// ConvertRows in fewer steps for rows without NaN: it handles no NaN, and widens the written values
// without going through 16 bits. False if a value was NaN: then output and lanes are invalid, and
// the caller converts all rows again.
template <bool kStream, typename In, typename Out>
HWY_INLINE bool ConvertNumbers(const In* /*input*/, size_t /*rows*/, Out* /*output*/,
                               double* /*lanes*/) {
  return false;
}
#if HWY_TARGET != HWY_SCALAR
template <bool kStream>
HWY_INLINE bool ConvertNumbers(const float* input, size_t rows, BFloat16* output, double* lanes) {
  const hn::CappedTag<float, kNormLanes / 2> d;
  const hn::RebindToUnsigned<decltype(d)> du32;
  const hn::Repartition<uint16_t, decltype(d)> du16;
  constexpr size_t kLanes = hn::MaxLanes(d);
  const hn::Repartition<double, decltype(d)> dd;
  constexpr size_t kSumLanes = hn::MaxLanes(dd);
  constexpr size_t kSums = kNormLanes / kSumLanes;
  hn::Vec<decltype(dd)> sums[kSums];
  const auto upper = hn::Set(du32, 0xFFFF0000u);
  auto numbers = hn::Eq(hn::Zero(d), hn::Zero(d));
  GEMINID_UNROLL_ROW
  for (size_t s = 0; s < kSums; ++s) sums[s] = hn::LoadU(dd, lanes + s * kSumLanes);
  for (size_t r = 0; r < rows; ++r, input += kNormLanes, output += kNormLanes) {
    if (kStream) hwy::Prefetch(input + kNormPrefetchElements);
    GEMINID_UNROLL_ROW
    for (size_t i = 0; i < kNormLanes; i += 2 * kLanes) {
      const auto first = hn::LoadU(d, input + i), second = hn::LoadU(d, input + i + kLanes);
      numbers = hn::And(numbers, hn::And(hn::Eq(first, first), hn::Eq(second, second)));
      const auto bits0 = NearestBits(d, first), bits1 = NearestBits(d, second);
      Put(du16, hn::ConcatOdd(du16, hn::BitCast(du16, bits1), hn::BitCast(du16, bits0)),
          Bits(output + i), kStream);
      AddLanes(d, hn::BitCast(d, hn::And(bits0, upper)), sums + i / kSumLanes);
      AddLanes(d, hn::BitCast(d, hn::And(bits1, upper)), sums + (i + kLanes) / kSumLanes);
    }
  }
  GEMINID_UNROLL_ROW
  for (size_t s = 0; s < kSums; ++s) hn::StoreU(sums[s], dd, lanes + s * kSumLanes);
  return hn::AllTrue(d, numbers);
}
#endif

template <bool kStream, typename In, typename Out>
HWY_INLINE double ConvertBlock(const In* input, size_t count, Out* output) {
  double lanes[kNormLanes] = {};
  const size_t rows = count / kNormLanes;
  if (!ConvertNumbers<kStream>(input, rows, output, lanes)) {
    std::fill_n(lanes, kNormLanes, 0.0);
    ConvertRows<kStream>(input, rows, output, lanes);
  }
  if (const size_t rest = count % kNormLanes; rest != 0) {
    In padded[kNormLanes] = {};
    Out converted[kNormLanes];
    std::copy_n(input + rows * kNormLanes, rest, padded);
    ConvertRows<false>(padded, 1, converted, lanes);
    std::copy_n(converted, rest, output + rows * kNormLanes);
  }
  for (size_t half = kNormLanes / 2; half != 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

template <bool kStream, typename In, typename Out>
HWY_INLINE double ConvertBlocks(const In* input, size_t count, Out* output, double sum) {
  BlockTree tree(sum);
  for (size_t begin = 0; begin < count; begin += kNormBlock) {
    tree.Add(
        ConvertBlock<kStream>(input + begin, HWY_MIN(kNormBlock, count - begin), output + begin));
  }
  return tree.Total();
}

template <typename In, typename Out>
HWY_INLINE double ConvertAll(const In* input, size_t count, Out* output, bool stream, double sum) {
  if (!stream) return ConvertBlocks<false>(input, count, output, sum);
  sum = ConvertBlocks<true>(input, count, output, sum);
  hwy::FlushStream();
  return sum;
}

double NarrowBFloat16(const float* input, size_t count, BFloat16* output, bool stream, double sum) {
  return ConvertAll(input, count, output, stream, sum);
}
double NarrowFloat16(const float* input, size_t count, Float16* output, bool stream, double sum) {
  return ConvertAll(input, count, output, stream, sum);
}
double WidenBFloat16(const BFloat16* input, size_t count, float* output, bool stream, double sum) {
  return ConvertAll(input, count, output, stream, sum);
}
double WidenFloat16(const Float16* input, size_t count, float* output, bool stream, double sum) {
  return ConvertAll(input, count, output, stream, sum);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace geminid::kernels {
namespace {

HWY_EXPORT(NarrowBFloat16);
HWY_EXPORT(NarrowFloat16);
HWY_EXPORT(WidenBFloat16);
HWY_EXPORT(WidenFloat16);

constexpr size_t kCacheLineBytes = 64;
// Smaller outputs may be read again from the second-level cache (1 MiB here, 1-2 MiB elsewhere).
constexpr size_t kStreamBytes = size_t{4} << 20;

template <typename In, typename Out, typename Kernel>
Status CheckAndRun(const In* input, size_t count, Out* output, SquareSum* total, Kernel kernel) {
  if (total == nullptr) return Status::kNullPointer;
  const Status status = CheckBuffers({Buffer::Of(input, count)}, {Buffer::Of(output, count)});
  if (status != Status::kOk || count == 0) return status;
  const ScopedFloatEnvironment environment;
  const bool stream = reinterpret_cast<uintptr_t>(output) % kCacheLineBytes == 0 &&
                      count * sizeof(Out) >= kStreamBytes;
  const double sum = kernel(input, count, output, stream, total->sum);
  total->sum = std::isnan(sum) ? std::numeric_limits<double>::quiet_NaN() : sum;
  return Status::kOk;
}

}  // namespace

Status CastToBFloat16AndAddSquares(const float* input, size_t count, BFloat16* output,
                                   SquareSum* total) {
  return CheckAndRun(input, count, output, total, HWY_DYNAMIC_DISPATCH(NarrowBFloat16));
}

Status CastToFloat16AndAddSquares(const float* input, size_t count, Float16* output,
                                  SquareSum* total) {
  return CheckAndRun(input, count, output, total, HWY_DYNAMIC_DISPATCH(NarrowFloat16));
}

Status CastToFloatAndAddSquares(const BFloat16* input, size_t count, float* output,
                                SquareSum* total) {
  return CheckAndRun(input, count, output, total, HWY_DYNAMIC_DISPATCH(WidenBFloat16));
}

Status CastToFloatAndAddSquares(const Float16* input, size_t count, float* output,
                                SquareSum* total) {
  return CheckAndRun(input, count, output, total, HWY_DYNAMIC_DISPATCH(WidenFloat16));
}

}  // namespace geminid::kernels
#endif  // HWY_ONCE
