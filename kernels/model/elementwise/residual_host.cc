#include "kernels/model/elementwise/residual.h"
#include "kernels/runtime/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/model/elementwise/residual_host.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/runtime/common/float_environment.h"
#include "kernels/runtime/simd/arguments.h"
#include "kernels/runtime/simd/f32x16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {

template <typename T>
void ResidualAddLoop(const T* a, const T* b, size_t count, T* out) {
  for (size_t i = 0; i < count; i += kWidth) {
    const size_t n = count - i;
    StoreN(LoadN(a + i, n) + LoadN(b + i, n), out + i, n);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace geminid::kernels {

template <typename T>
Status ResidualAdd(const T* a, const T* b, size_t count, T* out) {
  const Status status =
      CheckInPlace(Buffer::Of(out, count), {Buffer::Of(a, count), Buffer::Of(b, count)});
  if (status != Status::kOk || count == 0) return status;
  const ScopedFloatEnvironment environment;
  GEMINID_KERNEL_CALL(ResidualAddLoop<T>, a, b, count, out);
  return Status::kOk;
}

template Status ResidualAdd(const float*, const float*, size_t, float*);
template Status ResidualAdd(const BFloat16*, const BFloat16*, size_t, BFloat16*);

}  // namespace geminid::kernels
#endif  // HWY_ONCE
