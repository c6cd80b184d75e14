#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/numeric/cast/cast_host.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/numeric/cast/cast.h"
#include "kernels/runtime/common/buffers.h"
#include "kernels/runtime/common/float_environment.h"
#include "kernels/runtime/simd/half_lanes-inl.h"
#include "kernels/runtime/simd/highway_limit.h"  // IWYU pragma: keep

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {
namespace {

template <class D, typename Half>
HWY_INLINE size_t NarrowLoop(D d, const float* input, size_t begin, size_t end, Half* output) {
  const hn::Rebind<uint16_t, D> du16;
  size_t i = begin;
  for (; i + hn::Lanes(d) <= end; i += hn::Lanes(d)) {
    hn::StoreU(Narrowed(d, hn::LoadU(d, input + i), Half()), du16, Bits(output + i));
  }
  return i;
}

template <class D, typename Half>
HWY_INLINE size_t WidenLoop(D d, const Half* input, size_t begin, size_t end, float* output) {
  size_t i = begin;
  for (; i + hn::Lanes(d) <= end; i += hn::Lanes(d)) {
    hn::StoreU(LoadFloats(d, input + i), d, output + i);
  }
  return i;
}

template <typename Half>
void NarrowAll(const float* input, size_t count, Half* output) {
  const size_t done = NarrowLoop(hn::ScalableTag<float>(), input, 0, count, output);
  NarrowLoop(hn::CappedTag<float, 1>(), input, done, count, output);
}

template <typename Half>
void WidenAll(const Half* input, size_t count, float* output) {
  const size_t done = WidenLoop(hn::ScalableTag<float>(), input, 0, count, output);
  WidenLoop(hn::CappedTag<float, 1>(), input, done, count, output);
}

void NarrowRowsBFloat16(const CastRows& shape, const float* input, BFloat16* output) {
  for (size_t row = 0; row < shape.rows; ++row) {
    NarrowAll(input + row * shape.input_stride, shape.cols, output + row * shape.output_stride);
  }
}
void WidenRowsBFloat16(const CastRows& shape, const BFloat16* input, float* output) {
  for (size_t row = 0; row < shape.rows; ++row) {
    WidenAll(input + row * shape.input_stride, shape.cols, output + row * shape.output_stride);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace geminid::kernels {
namespace {

template <typename In, typename Out, typename Kernel>
Status CheckAndRun(const In* input, size_t count, Out* output, Kernel kernel) {
  const Status status = CheckBuffers({Buffer::Of(input, count)}, {Buffer::Of(output, count)});
  if (status != Status::kOk || count == 0) return status;
  const ScopedFloatEnvironment environment;
  kernel(input, count, output);
  return Status::kOk;
}

template <typename In, typename Out, typename Kernel>
Status CheckAndRunRows(const CastRows& s, const In* input, Out* output, Kernel kernel) {
  if (s.rows == 0 || s.cols == 0) return Status::kOk;
  if (s.input_stride < s.cols || s.output_stride < s.cols) return Status::kInvalidShape;
  const auto span = [&s](size_t stride) { return (s.rows - 1) * stride + s.cols; };
  const Status status = CheckBuffers({Buffer::Of(input, span(s.input_stride))},
                                     {Buffer::Of(output, span(s.output_stride))});
  if (status != Status::kOk) return status;
  const ScopedFloatEnvironment environment;
  kernel(s, input, output);
  return Status::kOk;
}

}  // namespace

Status CastToBFloat16(const float* input, size_t count, BFloat16* output) {
  return CheckAndRun(input, count, output, GEMINID_KERNEL_LOOP(NarrowAll<BFloat16>));
}

Status CastToFloat16(const float* input, size_t count, Float16* output) {
  return CheckAndRun(input, count, output, GEMINID_KERNEL_LOOP(NarrowAll<Float16>));
}

Status CastToFloat(const BFloat16* input, size_t count, float* output) {
  return CheckAndRun(input, count, output, GEMINID_KERNEL_LOOP(WidenAll<BFloat16>));
}

Status CastToFloat(const Float16* input, size_t count, float* output) {
  return CheckAndRun(input, count, output, GEMINID_KERNEL_LOOP(WidenAll<Float16>));
}

Status CastRowsToBFloat16(const CastRows& shape, const float* input, BFloat16* output) {
  return CheckAndRunRows(shape, input, output, GEMINID_KERNEL_LOOP(NarrowRowsBFloat16));
}

Status CastRowsToFloat(const CastRows& shape, const BFloat16* input, float* output) {
  return CheckAndRunRows(shape, input, output, GEMINID_KERNEL_LOOP(WidenRowsBFloat16));
}

}  // namespace geminid::kernels
#endif  // HWY_ONCE
