// fp32 lanes to and from 16-bit storage, on every instruction set with the bits of BFloat16 and
// Float16. Included once per instruction set, as lanes-inl.h is.
#if defined(GEMINID_KERNELS_RUNTIME_SIMD_HALF_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GEMINID_KERNELS_RUNTIME_SIMD_HALF_LANES_INL_H_
#undef GEMINID_KERNELS_RUNTIME_SIMD_HALF_LANES_INL_H_
#else
#define GEMINID_KERNELS_RUNTIME_SIMD_HALF_LANES_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/runtime/common/bfloat16.h"
#include "kernels/runtime/common/float16.h"
#include "kernels/runtime/simd/lanes-inl.h"

// Whether the instruction set converts binary16 itself (F16C comes with AVX2).
#undef GEMINID_HAS_F16C
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
#define GEMINID_HAS_F16C 1
#else
#define GEMINID_HAS_F16C 0
#endif

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {

HWY_INLINE const uint16_t* Bits(const Float16* p) { return reinterpret_cast<const uint16_t*>(p); }
HWY_INLINE uint16_t* Bits(Float16* p) { return reinterpret_cast<uint16_t*>(p); }

// True where a < b, both below 2^31: vectors before AVX-512 compare only signed integers.
template <class DU32, class V = hn::Vec<DU32>>
HWY_INLINE auto LessThan(DU32 du32, V a, V b) {
  const hn::RebindToSigned<DU32> di32;
  return hn::RebindMask(du32, hn::Lt(hn::BitCast(di32, a), hn::BitCast(di32, b)));
}

// 16-bit lanes widened. Exact; a signalling Float16 NaN is made quiet.
template <class D, class V16>
HWY_INLINE hn::Vec<D> Widened(D d, V16 half, BFloat16 /* type */) {
  const hn::RebindToUnsigned<D> du32;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du32, half)));
}
template <class D, class V16>
HWY_INLINE hn::Vec<D> Widened(D d, V16 half, Float16 /* type */) {
#if GEMINID_HAS_F16C
  const hn::Rebind<hwy::float16_t, D> df16;
  return hn::PromoteTo(d, hn::BitCast(df16, half));
#else
  const hn::RebindToUnsigned<D> du32;
  const hn::RebindToSigned<D> di32;
  const auto bits = hn::PromoteTo(du32, half);
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du32, 0x8000u)));
  const auto magnitude = hn::And(bits, hn::Set(du32, 0x7FFFu));
  const auto normal = hn::Add(hn::ShiftLeft<13>(magnitude), hn::Set(du32, 112u << 23));
  const auto tiny = hn::Mul(hn::ConvertTo(d, hn::BitCast(di32, magnitude)), hn::Set(d, 0x1p-24F));
  const auto special = hn::Or(hn::ShiftLeft<13>(magnitude), hn::Set(du32, 0x7F800000u));
  const auto quiet = hn::Or(special, hn::Set(du32, 0x00400000u));
  auto out = hn::IfThenElse(LessThan(du32, magnitude, hn::Set(du32, 0x0400u)),
                            hn::BitCast(du32, tiny), normal);
  out = hn::IfThenElse(LessThan(du32, hn::Set(du32, 0x7BFFu), magnitude), special, out);
  out = hn::IfThenElse(LessThan(du32, hn::Set(du32, 0x7C00u), magnitude), quiet, out);
  return hn::BitCast(d, hn::Or(sign, out));
#endif
}

// Lanes rounded as BFloat16::FromFloat and Float16::FromFloat do, as 16-bit lanes. The thread's
// rounding mode must be to nearest.
template <class D, class V>
HWY_INLINE auto Narrowed(D /* tag */, V v, BFloat16 /* type */) {
  const hn::RebindToUnsigned<D> du32;
  const auto bits = hn::BitCast(du32, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du32, 1u));
  const auto nearest = hn::Add(hn::Add(bits, hn::Set(du32, 0x7FFFu)), odd);
  const auto quiet = hn::Or(bits, hn::Set(du32, 0x00400000u));
  // Not Ne: it is false for NaN on some instruction sets.
  const auto number = hn::RebindMask(du32, hn::Eq(v, v));
  return UpperHalves(du32, hn::IfThenElse(number, nearest, quiet));
}
template <class D, class V>
HWY_INLINE auto Narrowed(D d, V v, Float16 /* type */) {
  const hn::Rebind<uint16_t, D> du16;
#if GEMINID_HAS_F16C
  (void)d;
  const hn::Rebind<hwy::float16_t, D> df16;
  return hn::BitCast(du16, hn::DemoteTo(df16, v));
#else
  const hn::RebindToUnsigned<D> du32;
  const hn::RebindToSigned<D> di32;
  const auto bits = hn::BitCast(du32, v);
  const auto sign = hn::ShiftRight<16>(hn::And(bits, hn::Set(du32, 0x80000000u)));
  const auto magnitude = hn::And(bits, hn::Set(du32, 0x7FFFFFFFu));
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du32, 1u));
  const auto rounded = hn::ShiftRight<13>(hn::Add(magnitude, hn::Add(odd, hn::Set(du32, 0xFFFu))));
  const auto normal = hn::Sub(rounded, hn::Set(du32, 112u << 10));
  // The unit in the last place of 0.5 is 2^-24, the subnormals' step: the addition rounds to it.
  const auto half = hn::Set(d, 0.5F);
  const auto tiny =
      hn::Sub(hn::BitCast(du32, hn::Add(hn::BitCast(d, magnitude), half)), hn::BitCast(du32, half));
  const auto payload = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du32, 0x3FFu));
  const auto nan = hn::Or(hn::Set(du32, 0x7E00u), payload);
  auto out = hn::IfThenElse(LessThan(du32, magnitude, hn::Set(du32, 113u << 23)), tiny, normal);
  out = hn::IfThenElse(LessThan(du32, hn::Set(du32, 0x477FFFFFu), magnitude),
                       hn::Set(du32, 0x7C00u), out);
  out = hn::IfThenElse(LessThan(du32, hn::Set(du32, 0x7F800000u), magnitude), nan, out);
  return hn::DemoteTo(du16, hn::BitCast(di32, hn::Or(sign, out)));
#endif
}

// Lanes(d) values as fp32, at any alignment; lanes-inl.h has the other types.
template <class D>
HWY_INLINE hn::Vec<D> LoadFloats(D d, const Float16* p) {
  const hn::Rebind<uint16_t, D> du16;
  return Widened(d, hn::LoadU(du16, Bits(p)), Float16());
}

}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
