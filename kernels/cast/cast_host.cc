#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cast/cast_host.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/cast/cast.h"
#include "kernels/common/buffers.h"
#include "kernels/common/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {
namespace {

// BFloat16::FromFloat on the bits of Lanes(du32) values.
template <class D, class V = hn::Vec<D>>
HWY_INLINE auto Rounded(D du32, V bits) {
  const auto one = hn::Set(du32, 1u);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), one);
  const auto nearest = hn::Add(hn::Add(bits, hn::Set(du32, 0x7FFFu)), odd);
  const auto quiet = hn::Or(bits, hn::Set(du32, 0x00400000u));
  // Signed, because vectors before AVX-512 compare only these; both sides are below 2^31.
  const hn::RebindToSigned<D> di32;
  const auto magnitude = hn::BitCast(di32, hn::And(bits, hn::Set(du32, 0x7FFFFFFFu)));
  const auto is_nan = hn::RebindMask(du32, hn::Gt(magnitude, hn::Set(di32, 0x7F800000)));
  return UpperHalves(du32, hn::IfThenElse(is_nan, quiet, nearest));
}

template <class D>
HWY_INLINE size_t RoundLoop(D du32, const float* input, size_t begin, size_t end,
                            BFloat16* output) {
  const hn::Rebind<float, D> df;
  const hn::Rebind<uint16_t, D> du16;
  size_t i = begin;
  for (; i + hn::Lanes(du32) <= end; i += hn::Lanes(du32)) {
    hn::StoreU(Rounded(du32, hn::BitCast(du32, hn::LoadU(df, input + i))), du16, Bits(output + i));
  }
  return i;
}

template <class D>
HWY_INLINE size_t WidenLoop(D df, const BFloat16* input, size_t begin, size_t end, float* output) {
  size_t i = begin;
  for (; i + hn::Lanes(df) <= end; i += hn::Lanes(df)) {
    hn::StoreU(LoadFloats(df, input + i), df, output + i);
  }
  return i;
}

void RoundAll(const float* input, size_t count, BFloat16* output) {
  const size_t done = RoundLoop(hn::ScalableTag<uint32_t>(), input, 0, count, output);
  RoundLoop(hn::CappedTag<uint32_t, 1>(), input, done, count, output);
}

void WidenAll(const BFloat16* input, size_t count, float* output) {
  const size_t done = WidenLoop(hn::ScalableTag<float>(), input, 0, count, output);
  WidenLoop(hn::CappedTag<float, 1>(), input, done, count, output);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace geminid::kernels {

HWY_EXPORT(RoundAll);
HWY_EXPORT(WidenAll);

Status CastToBFloat16(const float* input, size_t count, BFloat16* output) {
  const Status status = CheckBuffers({Buffer::Of(input, count)}, {Buffer::Of(output, count)});
  if (status != Status::kOk || count == 0) return status;
  HWY_DYNAMIC_DISPATCH(RoundAll)(input, count, output);
  return Status::kOk;
}

Status CastToFloat(const BFloat16* input, size_t count, float* output) {
  const Status status = CheckBuffers({Buffer::Of(input, count)}, {Buffer::Of(output, count)});
  if (status != Status::kOk || count == 0) return status;
  HWY_DYNAMIC_DISPATCH(WidenAll)(input, count, output);
  return Status::kOk;
}

}  // namespace geminid::kernels
#endif  // HWY_ONCE
