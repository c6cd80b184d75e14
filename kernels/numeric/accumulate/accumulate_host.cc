#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/numeric/accumulate/accumulate_host.cc"
#include <cmath>

#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/numeric/accumulate/accumulate.h"
#include "kernels/runtime/common/buffers.h"
#include "kernels/runtime/common/float_environment.h"
#include "kernels/runtime/simd/highway_limit.h"  // IWYU pragma: keep
#include "kernels/runtime/simd/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {
namespace {

template <class D, typename Gradient>
HWY_INLINE size_t AddLoop(D d, const Gradient* gradient, float scale, size_t begin, size_t end,
                          float* accumulator) {
  const auto factor = hn::Set(d, scale);
  size_t i = begin;
  for (; i + hn::Lanes(d) <= end; i += hn::Lanes(d)) {
    // Not MulAdd: it is one rounding or two, depending on the instruction set.
    const auto product = hn::Mul(LoadFloats(d, gradient + i), factor);
    const auto sum = hn::Add(hn::LoadU(d, accumulator + i), product);
    hn::StoreU(CanonicalNaN(d, sum), d, accumulator + i);
  }
  return i;
}

template <typename Gradient>
void AddAll(const Gradient* gradient, float scale, size_t count, float* accumulator) {
  const size_t done = AddLoop(hn::ScalableTag<float>(), gradient, scale, 0, count, accumulator);
  AddLoop(hn::CappedTag<float, 1>(), gradient, scale, done, count, accumulator);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace geminid::kernels {
namespace {

template <typename Gradient>
Status CheckAndAdd(const Gradient* gradient, float scale, size_t count, float* accumulator) {
  if (!std::isfinite(scale)) return Status::kInvalidParameter;
  const Status status =
      CheckBuffers({Buffer::Of(gradient, count)}, {Buffer::Of(accumulator, count)});
  if (status != Status::kOk || count == 0) return status;
  const ScopedFloatEnvironment environment;
  GEMINID_KERNEL_LOOP(AddAll<Gradient>)(gradient, scale, count, accumulator);
  return Status::kOk;
}

}  // namespace

Status Accumulate(const BFloat16* gradient, float scale, size_t count, float* accumulator) {
  return CheckAndAdd(gradient, scale, count, accumulator);
}

Status Accumulate(const float* gradient, float scale, size_t count, float* accumulator) {
  return CheckAndAdd(gradient, scale, count, accumulator);
}

}  // namespace geminid::kernels
#endif  // HWY_ONCE
