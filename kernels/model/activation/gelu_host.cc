#include "kernels/model/activation/gelu.h"
#include "kernels/runtime/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/model/activation/gelu_host.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/runtime/common/float_environment.h"
#include "kernels/runtime/simd/arguments.h"
#include "kernels/runtime/simd/f32x16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {

constexpr float kTwoSqrt2OverPi = 1.5957691216057308F;  // 2 sqrt(2/pi)
constexpr float kCubic = 0.044715F;

// sigmoid(2u), given x and x^2.
HWY_INLINE F32x16 GeluSigmoid(F32x16 x, F32x16 x2) {
  const F32x16 inner = MulAdd(x2, Set(kTwoSqrt2OverPi * kCubic), Set(kTwoSqrt2OverPi));
  return Sigmoid(x * inner);
}

template <typename T>
void GeluForwardLoop(const T* x, size_t count, T* y) {
  for (size_t i = 0; i < count; i += kWidth) {
    const size_t n = count - i;
    const F32x16 v = LoadN(x + i, n);
    StoreN(v * GeluSigmoid(v, v * v), y + i, n);
  }
}

template <typename T>
void GeluBackwardLoop(const T* dy, const T* x, size_t count, T* dx) {
  const F32x16 one = Set(1.0F);
  for (size_t i = 0; i < count; i += kWidth) {
    const size_t n = count - i;
    const F32x16 v = LoadN(x + i, n);
    const F32x16 v2 = v * v;
    const F32x16 s = GeluSigmoid(v, v2);
    const F32x16 slope = MulAdd(v2, Set(3.0F * kTwoSqrt2OverPi * kCubic), Set(kTwoSqrt2OverPi));
    // s(1-s) first: it is 0 where v * slope may overflow.
    const F32x16 derivative = MulAdd(v * (s * (one - s)), slope, s);
    StoreN(LoadN(dy + i, n) * derivative, dx + i, n);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace geminid::kernels {

template <typename T>
Status GeluForward(const T* x, size_t count, T* y) {
  const Status status = CheckInPlace(Buffer::Of(y, count), {Buffer::Of(x, count)});
  if (status != Status::kOk || count == 0) return status;
  const ScopedFloatEnvironment environment;
  GEMINID_KERNEL_LOOP(GeluForwardLoop<T>)(x, count, y);
  return Status::kOk;
}

template <typename T>
Status GeluBackward(const T* dy, const T* x, size_t count, T* dx) {
  const Status status =
      CheckInPlace(Buffer::Of(dx, count), {Buffer::Of(dy, count), Buffer::Of(x, count)});
  if (status != Status::kOk || count == 0) return status;
  const ScopedFloatEnvironment environment;
  GEMINID_KERNEL_LOOP(GeluBackwardLoop<T>)(dy, x, count, dx);
  return Status::kOk;
}

template Status GeluForward(const float*, size_t, float*);
template Status GeluForward(const BFloat16*, size_t, BFloat16*);
template Status GeluBackward(const float*, const float*, size_t, float*);
template Status GeluBackward(const BFloat16*, const BFloat16*, size_t, BFloat16*);

}  // namespace geminid::kernels
#endif  // HWY_ONCE
