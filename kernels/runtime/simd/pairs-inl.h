// 2 Lanes(d) elements as two vectors: those at even and those at odd indices. A shift and a mask
// load and store 16-bit elements in this form; vectors of consecutive elements would need shuffles.
// Included once per instruction set, as kernels/runtime/simd/lanes-inl.h is.
#if defined(GEMINID_KERNELS_RUNTIME_SIMD_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GEMINID_KERNELS_RUNTIME_SIMD_PAIRS_INL_H_
#undef GEMINID_KERNELS_RUNTIME_SIMD_PAIRS_INL_H_
#else
#define GEMINID_KERNELS_RUNTIME_SIMD_PAIRS_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/runtime/common/bfloat16.h"
#include "kernels/runtime/simd/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {

template <class V>
struct PairOf {
  V even, odd;
};
template <class D>
using Pair = PairOf<hn::Vec<D>>;

template <class D>
HWY_INLINE Pair<D> LoadPair(D d, const float* p) {
  hn::Vec<D> even, odd;
  hn::LoadInterleaved2(d, p, even, odd);
  return {even, odd};
}
template <class D>
HWY_INLINE void StorePair(D d, Pair<D> v, float* p) {
  hn::StoreInterleaved2(v.even, v.odd, d, p);
}

#if HWY_TARGET == HWY_SCALAR
// One lane: the pair is an element and the next.
template <class D>
HWY_INLINE Pair<D> LoadPair(D d, const BFloat16* p) {
  return {LoadFloats(d, p), LoadFloats(d, p + 1)};
}
template <class D>
HWY_INLINE Pair<D> LoadMasterPair(D d, const BFloat16* weight, const int16_t* remainder) {
  return {LoadMaster(d, weight, remainder), LoadMaster(d, weight + 1, remainder + 1)};
}
template <class DU32, class V = hn::Vec<DU32>>
HWY_INLINE void StoreUpperHalves(DU32 du32, V even, V odd, uint16_t* p) {
  const hn::Rebind<uint16_t, DU32> du16;
  hn::StoreU(UpperHalves(du32, even), du16, p);
  hn::StoreU(UpperHalves(du32, odd), du16, p + 1);
}
template <class DU32, class V = hn::Vec<DU32>>
HWY_INLINE void StoreLowerHalves(DU32 du32, V even, V odd, int16_t* p) {
  const hn::Rebind<int16_t, DU32> di16;
  hn::StoreU(LowerHalves(du32, even), di16, p);
  hn::StoreU(LowerHalves(du32, odd), di16, p + 1);
}
#else
template <class D>
HWY_INLINE Pair<D> LoadPair(D d, const BFloat16* p) {
  const hn::RebindToUnsigned<D> du32;
  const hn::Repartition<uint16_t, D> du16;
  const auto both = hn::BitCast(du32, hn::LoadU(du16, Bits(p)));
  return {hn::BitCast(d, hn::ShiftLeft<16>(both)),
          hn::BitCast(d, hn::And(both, hn::Set(du32, 0xFFFF0000u)))};
}

// The fp32 masters of split pairs; see kernels/numeric/split_master.
template <class D>
HWY_INLINE Pair<D> LoadMasterPair(D d, const BFloat16* weight, const int16_t* remainder) {
  const hn::RebindToUnsigned<D> du32;
  const hn::RebindToSigned<D> di32;
  const hn::Repartition<int16_t, D> di16;
  const auto upper = LoadPair(d, weight);
  const auto lower = hn::BitCast(di32, hn::LoadU(di16, remainder));
  const auto even = hn::ShiftRight<16>(hn::ShiftLeft<16>(lower)), odd = hn::ShiftRight<16>(lower);
  return {hn::BitCast(d, hn::Add(hn::BitCast(du32, upper.even), hn::BitCast(du32, even))),
          hn::BitCast(d, hn::Add(hn::BitCast(du32, upper.odd), hn::BitCast(du32, odd)))};
}

// The upper halves of 32-bit lanes.
template <class DU32, class V = hn::Vec<DU32>>
HWY_INLINE void StoreUpperHalves(DU32 /* tag */, V even, V odd, uint16_t* p) {
  const hn::Repartition<uint16_t, DU32> du16;
  hn::StoreU(hn::OddEven(hn::BitCast(du16, odd), hn::BitCast(du16, hn::ShiftRight<16>(even))), du16,
             p);
}
// The lower halves, as signed numbers.
template <class DU32, class V = hn::Vec<DU32>>
HWY_INLINE void StoreLowerHalves(DU32 /* tag */, V even, V odd, int16_t* p) {
  const hn::Repartition<int16_t, DU32> di16;
  hn::StoreU(hn::OddEven(hn::BitCast(di16, hn::ShiftLeft<16>(odd)), hn::BitCast(di16, even)), di16,
             p);
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
