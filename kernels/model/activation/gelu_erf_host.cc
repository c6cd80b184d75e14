#include "kernels/model/activation/gelu_erf.h"
#include "kernels/runtime/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/model/activation/gelu_erf_host.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/runtime/common/float_environment.h"
#include "kernels/runtime/simd/arguments.h"
#include "kernels/runtime/simd/f32x16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {

// |v|, at most kGeluTailEnd, beyond which the tail is 0.
HWY_INLINE F32x16 TailPlace(F32x16 v) {
  const FloatTag tag;
  GEMINID_UNROLL
  for (size_t p = 0; p < kParts; ++p) {
    v.part[p] = hn::Min(hn::Abs(v.part[p]), hn::Set(tag, kGeluTailEnd));
  }
  return v;
}

// `tail` for v below 0, else 1 - tail.
HWY_INLINE F32x16 OnItsSide(F32x16 v, F32x16 tail) {
  const FloatTag tag;
  GEMINID_UNROLL
  for (size_t p = 0; p < kParts; ++p) {
    const auto left = hn::Lt(v.part[p], hn::Zero(tag));
    v.part[p] = hn::IfThenElse(left, tail.part[p], hn::Sub(hn::Set(tag, 1.0F), tail.part[p]));
  }
  return v;
}

// Phi(v), given e^(-v^2/2).
HWY_INLINE F32x16 GeluCumulative(F32x16 v, F32x16 bell) {
  const F32x16 a = TailPlace(v);
  const F32x16 u = (a - Set(kGeluTailCentre)) / (a + Set(kGeluTailCentre));
  F32x16 q = Set(GeluTailTerm(0));
  for (size_t i = 1; i < kGeluTailTerms; ++i) q = MulAdd(q, u, Set(GeluTailTerm(i)));
  return OnItsSide(v, q * bell);
}

template <typename T>
void GeluErfForwardLoop(const T* x, size_t count, T* y) {
  for (size_t i = 0; i < count; i += kWidth) {
    const size_t n = count - i;
    const F32x16 v = LoadN(x + i, n);
    StoreN(v * GeluCumulative(v, Exp(v * v * Set(-0.5F))), y + i, n);
  }
}

template <typename T>
void GeluErfBackwardLoop(const T* dy, const T* x, size_t count, T* dx) {
  for (size_t i = 0; i < count; i += kWidth) {
    const size_t n = count - i;
    const F32x16 v = LoadN(x + i, n);
    const F32x16 bell = Exp(v * v * Set(-0.5F));
    const F32x16 derivative = MulAdd(v * Set(kGeluDensity), bell, GeluCumulative(v, bell));
    StoreN(LoadN(dy + i, n) * derivative, dx + i, n);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace geminid::kernels {

template <typename T>
Status GeluErfForward(const T* x, size_t count, T* y) {
  const Status status = CheckInPlace(Buffer::Of(y, count), {Buffer::Of(x, count)});
  if (status != Status::kOk || count == 0) return status;
  const ScopedFloatEnvironment environment;
  GEMINID_KERNEL_LOOP(GeluErfForwardLoop<T>)(x, count, y);
  return Status::kOk;
}

template <typename T>
Status GeluErfBackward(const T* dy, const T* x, size_t count, T* dx) {
  const Status status =
      CheckInPlace(Buffer::Of(dx, count), {Buffer::Of(dy, count), Buffer::Of(x, count)});
  if (status != Status::kOk || count == 0) return status;
  const ScopedFloatEnvironment environment;
  GEMINID_KERNEL_LOOP(GeluErfBackwardLoop<T>)(dy, x, count, dx);
  return Status::kOk;
}

template Status GeluErfForward(const float*, size_t, float*);
template Status GeluErfForward(const BFloat16*, size_t, BFloat16*);
template Status GeluErfBackward(const float*, const float*, size_t, float*);
template Status GeluErfBackward(const BFloat16*, const BFloat16*, size_t, BFloat16*);

}  // namespace geminid::kernels
#endif  // HWY_ONCE
