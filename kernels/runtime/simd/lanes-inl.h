// Vector helpers shared by the kernels. Included once per instruction set: the guard toggles, as
// Highway asks of every -inl.h file.
#if defined(GEMINID_KERNELS_RUNTIME_SIMD_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GEMINID_KERNELS_RUNTIME_SIMD_LANES_INL_H_
#undef GEMINID_KERNELS_RUNTIME_SIMD_LANES_INL_H_
#else
#define GEMINID_KERNELS_RUNTIME_SIMD_LANES_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/runtime/common/bfloat16.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Highway's loads and stores take pointers to plain integers.
HWY_INLINE const uint16_t* Bits(const BFloat16* p) { return reinterpret_cast<const uint16_t*>(p); }
HWY_INLINE uint16_t* Bits(BFloat16* p) { return reinterpret_cast<uint16_t*>(p); }

// Lanes(d) values as fp32, at any alignment. `d` is a tag of float.
template <class D>
HWY_INLINE hn::Vec<D> LoadFloats(D d, const float* p) {
  return hn::LoadU(d, p);
}
template <class D>
HWY_INLINE hn::Vec<D> LoadFloats(D d, const BFloat16* p) {
  const hn::RebindToUnsigned<D> du32;
  const hn::Rebind<uint16_t, D> du16;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du32, hn::LoadU(du16, Bits(p)))));
}

// The fp32 masters of split pairs; see kernels/numeric/split_master.
template <class D>
HWY_INLINE hn::Vec<D> LoadMaster(D d, const BFloat16* weight, const int16_t* remainder) {
  const hn::RebindToUnsigned<D> du32;
  const hn::RebindToSigned<D> di32;
  const hn::Rebind<uint16_t, D> du16;
  const hn::Rebind<int16_t, D> di16;
  const auto upper = hn::ShiftLeft<16>(hn::PromoteTo(du32, hn::LoadU(du16, Bits(weight))));
  const auto lower = hn::BitCast(du32, hn::PromoteTo(di32, hn::LoadU(di16, remainder)));
  return hn::BitCast(d, hn::Add(upper, lower));
}

// The upper halves of 32-bit lanes, as 16-bit lanes: exact, for every value.
template <class DU32, class V = hn::Vec<DU32>>
HWY_INLINE auto UpperHalves(DU32 /* tag */, V bits) {
  const hn::Rebind<int32_t, DU32> di32;
  const hn::Rebind<uint16_t, DU32> du16;
  return hn::DemoteTo(du16, hn::BitCast(di32, hn::ShiftRight<16>(bits)));
}

// As UpperHalves, after rounding to nearest, ties away from zero: the weight of split pairs.
template <class DU32, class V = hn::Vec<DU32>>
HWY_INLINE auto RoundedUpperHalves(DU32 du32, V bits) {
  return UpperHalves(du32, hn::Add(bits, hn::Set(du32, 0x8000u)));
}

// The lower halves of 32-bit lanes, as signed 16-bit lanes.
template <class DU32, class V = hn::Vec<DU32>>
HWY_INLINE auto LowerHalves(DU32 /* tag */, V bits) {
  const hn::Rebind<int32_t, DU32> di32;
  const hn::Rebind<int16_t, DU32> di16;
  return hn::DemoteTo(di16, hn::ShiftRight<16>(hn::BitCast(di32, hn::ShiftLeft<16>(bits))));
}

// `v` with every NaN replaced by 0x7FC00000. Instruction sets differ in which operand's payload
// survives an operation; this makes results comparable bit for bit.
template <class D>
HWY_INLINE hn::Vec<D> CanonicalNaN(D d, hn::Vec<D> v) {
  const hn::RebindToUnsigned<D> du32;
  const auto quiet_nan = hn::BitCast(d, hn::Set(du32, 0x7FC00000u));
  return hn::IfThenElse(hn::Eq(v, v), v, quiet_nan);
}

}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
