// A vector of exactly 16 floats on every instruction set: one AVX-512 register, two of AVX, four of
// SSE or NEON. Sums over lanes run in one fixed tree. So a kernel written with it does the same
// additions in the same order everywhere, and gives the same bits on every set that has FMA.
//
// Included once per target by Highway, hence the inverted include guard.
#if defined(GEMINID_KERNELS_RUNTIME_SIMD_F32X16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GEMINID_KERNELS_RUNTIME_SIMD_F32X16_INL_H_
#undef GEMINID_KERNELS_RUNTIME_SIMD_F32X16_INL_H_
#else
#define GEMINID_KERNELS_RUNTIME_SIMD_F32X16_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/runtime/common/bfloat16.h"

// On real vectors every function here becomes a few instructions inside its caller. Loops over
// parts become straight code, which keeps them in registers (-O2 alone does not unroll them). On
// the fallback a vector is a loop itself: forcing that inline gains nothing and makes compilers
// with sanitizers run for minutes.
#undef GEMINID_UNROLL
#undef GEMINID_F32_INLINE
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
#define GEMINID_UNROLL
#define GEMINID_F32_INLINE inline
#elif defined(__clang__)
#define GEMINID_UNROLL _Pragma("clang loop unroll(full)")
#define GEMINID_F32_INLINE HWY_INLINE
#else
#define GEMINID_UNROLL _Pragma("GCC unroll 16")
#define GEMINID_F32_INLINE HWY_INLINE
#endif

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

inline constexpr size_t kWidth = 16;

using FloatTag = hn::CappedTag<float, kWidth>;
using IntTag = hn::RebindToSigned<FloatTag>;
using BitsTag = hn::RebindToUnsigned<FloatTag>;
using HalfBitsTag = hn::Rebind<uint16_t, FloatTag>;
inline constexpr size_t kPartLanes = hn::MaxLanes(FloatTag());
inline constexpr size_t kParts = kWidth / kPartLanes;

struct F32x16 {
  hn::Vec<FloatTag> part[kParts];
};

// One element to fp32, exact, and back, rounded as the vector stores round.
GEMINID_F32_INLINE float ToFloat(float value) { return value; }
GEMINID_F32_INLINE float ToFloat(BFloat16 value) { return value.ToFloat(); }

template <typename T>
GEMINID_F32_INLINE T FromFloat(float value) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else {
    return T::FromFloat(value);
  }
}

GEMINID_F32_INLINE F32x16 Set(float value) {
  F32x16 out;
  GEMINID_UNROLL
  for (size_t p = 0; p < kParts; ++p) out.part[p] = hn::Set(FloatTag(), value);
  return out;
}

GEMINID_F32_INLINE F32x16 Load(const float* from) {
  F32x16 out;
  GEMINID_UNROLL
  for (size_t p = 0; p < kParts; ++p) {
    out.part[p] = hn::LoadU(FloatTag(), from + p * kPartLanes);
  }
  return out;
}

GEMINID_F32_INLINE F32x16 Load(const BFloat16* from) {
  const auto* bits = reinterpret_cast<const uint16_t*>(from);
  F32x16 out;
  GEMINID_UNROLL
  for (size_t p = 0; p < kParts; ++p) {
    const auto half = hn::LoadU(HalfBitsTag(), bits + p * kPartLanes);
    out.part[p] = hn::BitCast(FloatTag(), hn::ShiftLeft<16>(hn::PromoteTo(BitsTag(), half)));
  }
  return out;
}

GEMINID_F32_INLINE void Store(F32x16 v, float* to) {
  GEMINID_UNROLL
  for (size_t p = 0; p < kParts; ++p) hn::StoreU(v.part[p], FloatTag(), to + p * kPartLanes);
}

// Rounds as BFloat16::FromFloat does.
GEMINID_F32_INLINE void Store(F32x16 v, BFloat16* to) {
  auto* bits_to = reinterpret_cast<uint16_t*>(to);
  const BitsTag bits_tag;
  GEMINID_UNROLL
  for (size_t p = 0; p < kParts; ++p) {
    const auto bits = hn::BitCast(bits_tag, v.part[p]);
    const auto upper = hn::ShiftRight<16>(bits);
    const auto odd = hn::And(upper, hn::Set(bits_tag, 1));
    const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(bits_tag, 0x7FFF))));
    const auto quiet = hn::Or(upper, hn::Set(bits_tag, 0x0040));
    const auto is_nan = hn::RebindMask(bits_tag, hn::IsNaN(v.part[p]));
    const auto chosen = hn::BitCast(IntTag(), hn::IfThenElse(is_nan, quiet, rounded));
    hn::StoreU(hn::DemoteTo(HalfBitsTag(), chosen), HalfBitsTag(), bits_to + p * kPartLanes);
  }
}

// Loads the first `count` <= 16 elements and fills the rest. Reads nothing beyond them.
template <typename T>
GEMINID_F32_INLINE F32x16 LoadN(const T* from, size_t count, float fill = 0.0F) {
  if (HWY_LIKELY(count >= kWidth)) return Load(from);
  alignas(64) float lanes[kWidth];
  for (size_t i = 0; i < kWidth; ++i) {
    lanes[i] = i < count ? ToFloat(from[i]) : fill;
  }
  return Load(lanes);
}

// Stores the first `count` <= 16 elements and touches nothing beyond them.
template <typename T>
GEMINID_F32_INLINE void StoreN(F32x16 v, T* to, size_t count) {
  if (HWY_LIKELY(count >= kWidth)) return Store(v, to);
  alignas(64) T lanes[kWidth];
  Store(v, lanes);
  for (size_t i = 0; i < count; ++i) to[i] = lanes[i];
}

GEMINID_F32_INLINE F32x16 operator+(F32x16 a, F32x16 b) {
  GEMINID_UNROLL
  for (size_t p = 0; p < kParts; ++p) a.part[p] = hn::Add(a.part[p], b.part[p]);
  return a;
}

GEMINID_F32_INLINE F32x16 operator-(F32x16 a, F32x16 b) {
  GEMINID_UNROLL
  for (size_t p = 0; p < kParts; ++p) a.part[p] = hn::Sub(a.part[p], b.part[p]);
  return a;
}

GEMINID_F32_INLINE F32x16 operator*(F32x16 a, F32x16 b) {
  GEMINID_UNROLL
  for (size_t p = 0; p < kParts; ++p) a.part[p] = hn::Mul(a.part[p], b.part[p]);
  return a;
}

GEMINID_F32_INLINE F32x16 operator/(F32x16 a, F32x16 b) {
  GEMINID_UNROLL
  for (size_t p = 0; p < kParts; ++p) a.part[p] = hn::Div(a.part[p], b.part[p]);
  return a;
}

// a b + c; one rounding where the target has FMA.
GEMINID_F32_INLINE F32x16 MulAdd(F32x16 a, F32x16 b, F32x16 c) {
  GEMINID_UNROLL
  for (size_t p = 0; p < kParts; ++p) a.part[p] = hn::MulAdd(a.part[p], b.part[p], c.part[p]);
  return a;
}

GEMINID_F32_INLINE F32x16 Max(F32x16 a, F32x16 b) {
  GEMINID_UNROLL
  for (size_t p = 0; p < kParts; ++p) a.part[p] = hn::Max(a.part[p], b.part[p]);
  return a;
}

// Lane i + lane i+8, then +4, +2, +1.
GEMINID_F32_INLINE float SumLanes(F32x16 v) {
  alignas(64) float lanes[kWidth];
  Store(v, lanes);
  GEMINID_UNROLL
  for (size_t half = kWidth / 2; half > 0; half /= 2) {
    GEMINID_UNROLL
    for (size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

GEMINID_F32_INLINE float MaxLane(F32x16 v) {
  alignas(64) float lanes[kWidth];
  Store(v, lanes);
  GEMINID_UNROLL
  for (size_t half = kWidth / 2; half > 0; half /= 2) {
    GEMINID_UNROLL
    for (size_t i = 0; i < half; ++i) lanes[i] = std::max(lanes[i], lanes[i + half]);
  }
  return lanes[0];
}

// e^x. Error below 1 ulp of the result (below 2^-149 where that is subnormal) for finite x;
// infinity above 88.73, 0 below -103.98; NaN stays NaN.
//
// x = n ln2 + r with |r| <= ln2/2; ln2 in two parts so that n ln2 is exact enough; the polynomial
// is that of expf in Cephes (Moshier, netlib). 2^n is applied in two halves: n reaches 128 and
// -150.
GEMINID_F32_INLINE F32x16 Exp(F32x16 x) {
  const FloatTag tag;
  const IntTag int_tag;
  const auto bias = hn::Set(int_tag, 127);
  GEMINID_UNROLL
  for (size_t p = 0; p < kParts; ++p) {
    const auto in = x.part[p];
    const auto clamped = hn::Min(hn::Max(in, hn::Set(tag, -110.0F)), hn::Set(tag, 100.0F));
    const auto n = hn::Round(hn::Mul(clamped, hn::Set(tag, 1.44269504088896341F)));
    auto r = hn::NegMulAdd(n, hn::Set(tag, 0.693359375F), clamped);
    r = hn::NegMulAdd(n, hn::Set(tag, -2.12194440e-4F), r);
    auto y = hn::Set(tag, 1.9875691500e-4F);
    y = hn::MulAdd(y, r, hn::Set(tag, 1.3981999507e-3F));
    y = hn::MulAdd(y, r, hn::Set(tag, 8.3334519073e-3F));
    y = hn::MulAdd(y, r, hn::Set(tag, 4.1665795894e-2F));
    y = hn::MulAdd(y, r, hn::Set(tag, 1.6666665459e-1F));
    y = hn::MulAdd(y, r, hn::Set(tag, 5.0000001201e-1F));
    y = hn::Add(hn::MulAdd(y, hn::Mul(r, r), r), hn::Set(tag, 1.0F));
    const auto exponent = hn::ConvertTo(int_tag, n);
    const auto first = hn::ShiftRight<1>(exponent);
    const auto second = hn::Sub(exponent, first);
    y = hn::Mul(y, hn::BitCast(tag, hn::ShiftLeft<23>(hn::Add(first, bias))));
    y = hn::Mul(y, hn::BitCast(tag, hn::ShiftLeft<23>(hn::Add(second, bias))));
    x.part[p] = hn::IfThenElse(hn::IsNaN(in), in, y);
  }
  return x;
}

// 1 / (1 + e^-x). Exactly 0 and 1 at the far ends, error below 3 ulp between.
GEMINID_F32_INLINE F32x16 Sigmoid(F32x16 x) {
  const F32x16 one = Set(1.0F);
  return one / (one + Exp(Set(0.0F) - x));
}

}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#endif  // GEMINID_KERNELS_RUNTIME_SIMD_F32X16_INL_H_
