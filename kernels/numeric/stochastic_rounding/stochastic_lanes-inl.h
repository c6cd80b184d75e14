// The random bits of kernels/numeric/stochastic_rounding/stochastic_rounding_rule.h for vectors.
// Included once per instruction set, as kernels/runtime/simd/lanes-inl.h is.
#if defined(GEMINID_KERNELS_NUMERIC_STOCHASTIC_ROUNDING_STOCHASTIC_LANES_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef GEMINID_KERNELS_NUMERIC_STOCHASTIC_ROUNDING_STOCHASTIC_LANES_INL_H_
#undef GEMINID_KERNELS_NUMERIC_STOCHASTIC_ROUNDING_STOCHASTIC_LANES_INL_H_
#else
#define GEMINID_KERNELS_NUMERIC_STOCHASTIC_ROUNDING_STOCHASTIC_LANES_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/numeric/stochastic_rounding/stochastic_rounding_rule.h"
#include "kernels/runtime/simd/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {

// RoundingBits for vectors.
template <class DU32, class V = hn::Vec<DU32>>
HWY_INLINE V RandomLanes(DU32 du32, V key, V index_low) {
  V x = hn::Mul(hn::Xor(index_low, key), hn::Set(du32, kMix32Multiplier1));
  x = hn::Add(hn::Xor(x, hn::ShiftRight<15>(x)), key);
  x = hn::Mul(x, hn::Set(du32, kMix32Multiplier2));
  return hn::Xor(x, hn::ShiftRight<16>(x));
}

}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
