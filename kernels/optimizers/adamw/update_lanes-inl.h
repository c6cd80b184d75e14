// AdamW for vectors, operation for operation tests/kernels/optimizers/adamw_reference.cc. Included
// once per instruction set, as kernels/runtime/simd/lanes-inl.h is.
#if defined(GEMINID_KERNELS_OPTIMIZERS_ADAMW_UPDATE_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GEMINID_KERNELS_OPTIMIZERS_ADAMW_UPDATE_LANES_INL_H_
#undef GEMINID_KERNELS_OPTIMIZERS_ADAMW_UPDATE_LANES_INL_H_
#else
#define GEMINID_KERNELS_OPTIMIZERS_ADAMW_UPDATE_LANES_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/optimizers/adamw/adamw_coefficients.h"
#include "kernels/runtime/simd/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {

// Updates Lanes(d) parameters; a NaN may have any payload. Returns the square root of the new v.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Update(D d, const AdamWCoefficients& k, V gradient, V& w, V& m, V& v) {
  const V g = hn::Mul(gradient, hn::Set(d, k.grad_scale));
  m = hn::Add(hn::Mul(m, hn::Set(d, k.beta1)), hn::Mul(g, hn::Set(d, k.one_minus_beta1)));
  v = hn::Add(hn::Mul(v, hn::Set(d, k.beta2)),
              hn::Mul(hn::Mul(g, hn::Set(d, k.one_minus_beta2)), g));
  const V root = hn::Sqrt(v);
  const V denominator = hn::Add(hn::Mul(root, hn::Set(d, k.correction2)), hn::Set(d, k.epsilon));
  const V step = hn::Div(hn::Mul(m, hn::Set(d, k.step_size)), denominator);
  const V change = hn::Add(hn::Mul(w, hn::Set(d, k.decay_rate)), step);
  w = hn::Sub(w, change);
  return root;
}

// Makes every NaN of a new state 0x7FC00000. If m or v is NaN, so is w; therefore only w is
// tested.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void CanonicaliseState(D d, V& w, V& m, V& v) {
  if (HWY_LIKELY(hn::AllTrue(d, hn::Eq(w, w)))) return;
  w = CanonicalNaN(d, w);
  m = CanonicalNaN(d, m);
  v = CanonicalNaN(d, v);
}

}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
