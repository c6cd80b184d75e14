#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/numeric/split_master/split_master_host.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/numeric/split_master/split_master.h"
#include "kernels/runtime/common/buffers.h"
#include "kernels/runtime/simd/highway_limit.h"  // IWYU pragma: keep
#include "kernels/runtime/simd/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {
namespace {

template <class D>
HWY_INLINE size_t SplitLoop(D du32, const float* master, size_t begin, size_t end, BFloat16* weight,
                            int16_t* remainder) {
  const hn::Rebind<float, D> df;
  const hn::Rebind<uint16_t, D> du16;
  const hn::Rebind<int16_t, D> di16;
  size_t i = begin;
  for (; i + hn::Lanes(du32) <= end; i += hn::Lanes(du32)) {
    const auto bits = hn::BitCast(du32, hn::LoadU(df, master + i));
    hn::StoreU(RoundedUpperHalves(du32, bits), du16, Bits(weight + i));
    hn::StoreU(LowerHalves(du32, bits), di16, remainder + i);
  }
  return i;
}

template <class D>
HWY_INLINE size_t JoinLoop(D du32, const BFloat16* weight, const int16_t* remainder, size_t begin,
                           size_t end, float* master) {
  const hn::Rebind<float, D> df;
  size_t i = begin;
  for (; i + hn::Lanes(du32) <= end; i += hn::Lanes(du32)) {
    hn::StoreU(LoadMaster(df, weight + i, remainder + i), df, master + i);
  }
  return i;
}

void SplitAll(const float* master, size_t count, BFloat16* weight, int16_t* remainder) {
  const size_t done = SplitLoop(hn::ScalableTag<uint32_t>(), master, 0, count, weight, remainder);
  SplitLoop(hn::CappedTag<uint32_t, 1>(), master, done, count, weight, remainder);
}

void JoinAll(const BFloat16* weight, const int16_t* remainder, size_t count, float* master) {
  const size_t done = JoinLoop(hn::ScalableTag<uint32_t>(), weight, remainder, 0, count, master);
  JoinLoop(hn::CappedTag<uint32_t, 1>(), weight, remainder, done, count, master);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace geminid::kernels {

Status SplitMaster(const float* master, size_t count, BFloat16* weight, int16_t* remainder) {
  const Status status = CheckBuffers({Buffer::Of(master, count)},
                                     {Buffer::Of(weight, count), Buffer::Of(remainder, count)});
  if (status != Status::kOk || count == 0) return status;
  GEMINID_KERNEL_LOOP(SplitAll)(master, count, weight, remainder);
  return Status::kOk;
}

Status JoinMaster(const BFloat16* weight, const int16_t* remainder, size_t count, float* master) {
  const Status status = CheckBuffers({Buffer::Of(weight, count), Buffer::Of(remainder, count)},
                                     {Buffer::Of(master, count)});
  if (status != Status::kOk || count == 0) return status;
  GEMINID_KERNEL_LOOP(JoinAll)(weight, remainder, count, master);
  return Status::kOk;
}

}  // namespace geminid::kernels
#endif  // HWY_ONCE
