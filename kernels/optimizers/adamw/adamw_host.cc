#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optimizers/adamw/adamw_host.cc"
#include <tuple>

#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/optimizers/adamw/adamw.h"
#include "kernels/optimizers/adamw/adamw_coefficients.h"
#include "kernels/optimizers/adamw/update_lanes-inl.h"
#include "kernels/runtime/common/buffers.h"
#include "kernels/runtime/common/float_environment.h"
#include "kernels/runtime/simd/highway_limit.h"  // IWYU pragma: keep
#include "kernels/runtime/simd/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {
namespace {

template <class D>
HWY_INLINE hn::Vec<D> LoadWeights(D d, const ConstSplitState& state, size_t i) {
  return LoadMaster(d, state.weight + i, state.remainder + i);
}
template <class D>
HWY_INLINE hn::Vec<D> LoadWeights(D d, const ConstMasterState& state, size_t i) {
  return hn::LoadU(d, state.weight + i);
}

template <class D>
HWY_INLINE void StoreWeights(D /* tag */, hn::Vec<D> w, const SplitState& state, size_t i) {
  const hn::RebindToUnsigned<D> du32;
  const hn::Rebind<uint16_t, D> du16;
  const hn::Rebind<int16_t, D> di16;
  const auto bits = hn::BitCast(du32, w);
  hn::StoreU(RoundedUpperHalves(du32, bits), du16, Bits(state.weight + i));
  hn::StoreU(LowerHalves(du32, bits), di16, state.remainder + i);
}
template <class D>
HWY_INLINE void StoreWeights(D d, hn::Vec<D> w, const MasterState& state, size_t i) {
  hn::StoreU(w, d, state.weight + i);
}

// Updates from `begin` while a whole vector fits below `end`; returns where it stopped.
template <class D, class OldState, typename Gradient, class NewState>
HWY_INLINE size_t UpdateLoop(D d, const AdamWCoefficients k, const OldState old_state,
                             const Gradient* gradient, const NewState new_state, size_t begin,
                             size_t end) {
  size_t i = begin;
  for (; i + hn::Lanes(d) <= end; i += hn::Lanes(d)) {
    auto w = LoadWeights(d, old_state, i);
    auto m = hn::LoadU(d, old_state.exp_avg + i);
    auto v = hn::LoadU(d, old_state.exp_avg_sq + i);
    Update(d, k, LoadFloats(d, gradient + i), w, m, v);
    CanonicaliseState(d, w, m, v);
    StoreWeights(d, w, new_state, i);
    hn::StoreU(m, d, new_state.exp_avg + i);
    hn::StoreU(v, d, new_state.exp_avg_sq + i);
  }
  return i;
}

#if HWY_TARGET != HWY_SCALAR
template <bool kStream, class D, typename T>
HWY_INLINE void Put(D d, hn::Vec<D> v, T* to) {
  if (kStream) {
    hn::Stream(v, d, to);
  } else {
    hn::StoreU(v, d, to);
  }
}

// Two vectors of weights at once: their 16-bit halves make one full vector, which is the least that
// can be streamed, and cost one shuffle each.
template <bool kStream, class D>
HWY_INLINE void PutWeights(D /* tag */, hn::Vec<D> w0, hn::Vec<D> w1, const SplitState& state,
                           size_t i) {
  const hn::RebindToUnsigned<D> du32;
  const hn::Repartition<uint16_t, D> du16;
  const hn::Repartition<int16_t, D> di16;
  const auto half = hn::Set(du32, 0x8000u);  // rounds as RoundedUpperHalves does
  const auto upper0 = hn::BitCast(du16, hn::Add(hn::BitCast(du32, w0), half));
  const auto upper1 = hn::BitCast(du16, hn::Add(hn::BitCast(du32, w1), half));
  Put<kStream>(du16, hn::ConcatOdd(du16, upper1, upper0), Bits(state.weight + i));
  Put<kStream>(di16, hn::ConcatEven(di16, hn::BitCast(di16, w1), hn::BitCast(di16, w0)),
               state.remainder + i);
}
template <bool kStream, class D>
HWY_INLINE void PutWeights(D d, hn::Vec<D> w0, hn::Vec<D> w1, const MasterState& state, size_t i) {
  Put<kStream>(d, w0, state.weight + i);
  Put<kStream>(d, w1, state.weight + i + hn::Lanes(d));
}

// Elements of one round of PairLoop: a cache line of 16-bit arrays, the widest step.
constexpr size_t kRound = 32;
// Hardware prefetchers stop at page ends. Prefetching gains up to 8 %; 1024 elements are too far.
constexpr size_t kPrefetchElements = 256;

template <typename T>
HWY_INLINE void PrefetchRound(const T* p) {
  constexpr size_t kLineBytes = 64;
  const auto* bytes = reinterpret_cast<const char*>(p + kPrefetchElements);
  for (size_t at = 0; at < kRound * sizeof(T); at += kLineBytes) hwy::Prefetch(bytes + at);
}
HWY_INLINE void PrefetchWeights(const ConstSplitState& state, size_t i) {
  PrefetchRound(state.weight + i);
  PrefetchRound(state.remainder + i);
}
HWY_INLINE void PrefetchWeights(const ConstMasterState& state, size_t i) {
  PrefetchRound(state.weight + i);
}

// As UpdateLoop, in rounds of kRound elements, two vectors at a time. To stream, the new state at
// `begin` is aligned to a cache line.
template <bool kStream, class D, class OldState, typename Gradient, class NewState>
HWY_INLINE size_t PairLoop(D d, const AdamWCoefficients k, const OldState old_state,
                           const Gradient* gradient, const NewState new_state, size_t begin,
                           size_t end) {
  const size_t n = hn::Lanes(d);
  size_t i = begin;
  while (i + kRound <= end) {
    PrefetchWeights(old_state, i);
    PrefetchRound(old_state.exp_avg + i);
    PrefetchRound(old_state.exp_avg_sq + i);
    PrefetchRound(gradient + i);
    for (const size_t round_end = i + kRound; i < round_end; i += 2 * n) {
      auto w0 = LoadWeights(d, old_state, i);
      auto m0 = hn::LoadU(d, old_state.exp_avg + i);
      auto v0 = hn::LoadU(d, old_state.exp_avg_sq + i);
      Update(d, k, LoadFloats(d, gradient + i), w0, m0, v0);
      auto w1 = LoadWeights(d, old_state, i + n);
      auto m1 = hn::LoadU(d, old_state.exp_avg + i + n);
      auto v1 = hn::LoadU(d, old_state.exp_avg_sq + i + n);
      Update(d, k, LoadFloats(d, gradient + i + n), w1, m1, v1);
      CanonicaliseState(d, w0, m0, v0);
      CanonicaliseState(d, w1, m1, v1);
      PutWeights<kStream>(d, w0, w1, new_state, i);
      Put<kStream>(d, m0, new_state.exp_avg + i);
      Put<kStream>(d, m1, new_state.exp_avg + i + n);
      Put<kStream>(d, v0, new_state.exp_avg_sq + i);
      Put<kStream>(d, v1, new_state.exp_avg_sq + i + n);
    }
  }
  return i;
}
#endif  // HWY_TARGET != HWY_SCALAR

// Updates [0, count); [stream_begin, count) with streaming stores where they exist.
template <class Types, class OldState = std::tuple_element_t<0, Types>,
          typename Gradient = std::tuple_element_t<1, Types>,
          class NewState = std::tuple_element_t<2, Types>>
void UpdateAll(const AdamWCoefficients& k, const OldState& old_state, const Gradient* gradient,
               const NewState& new_state, size_t count, size_t stream_begin) {
  const hn::CappedTag<float, 16> d;
  const hn::CappedTag<float, 1> d1;
  size_t done = 0;
#if HWY_TARGET != HWY_SCALAR
  done = PairLoop<false>(d, k, old_state, gradient, new_state, done, stream_begin);
#endif
  done = UpdateLoop(d, k, old_state, gradient, new_state, done, stream_begin);
  done = UpdateLoop(d1, k, old_state, gradient, new_state, done, stream_begin);
  if (done == count) return;
#if HWY_TARGET != HWY_SCALAR
  done = PairLoop<true>(d, k, old_state, gradient, new_state, done, count);
#endif
  done = UpdateLoop(d, k, old_state, gradient, new_state, done, count);
  UpdateLoop(d1, k, old_state, gradient, new_state, done, count);
  hwy::FlushStream();
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace geminid::kernels {
namespace {

constexpr size_t kCacheLineBytes = 64;

template <typename T>
bool AlignedToLine(const T* p) {
  return reinterpret_cast<uintptr_t>(p) % kCacheLineBytes == 0;
}

// The first element at which every array of the new state starts a cache line; `count` if there
// is none, that is, no streaming. The arrays need not be aligned, only aligned alike.
size_t StreamBegin(const SplitState& s, size_t count) {
  const size_t misplaced = reinterpret_cast<uintptr_t>(s.weight) % kCacheLineBytes;
  const size_t first = misplaced == 0 ? 0 : (kCacheLineBytes - misplaced) / sizeof(BFloat16);
  const bool alike = first < count && AlignedToLine(s.remainder + first) &&
                     AlignedToLine(s.exp_avg + first) && AlignedToLine(s.exp_avg_sq + first);
  return alike ? first : count;
}
size_t StreamBegin(const MasterState& s, size_t count) {
  const size_t misplaced = reinterpret_cast<uintptr_t>(s.weight) % kCacheLineBytes;
  const size_t first = misplaced == 0 ? 0 : (kCacheLineBytes - misplaced) / sizeof(float);
  const bool alike =
      first < count && AlignedToLine(s.exp_avg + first) && AlignedToLine(s.exp_avg_sq + first);
  return alike ? first : count;
}

template <class OldState, typename Gradient, class NewState>
void Dispatch(const AdamWCoefficients& k, const OldState& old_state, const Gradient* gradient,
              const NewState& new_state, size_t count, size_t stream) {
  using Types = std::tuple<OldState, Gradient, NewState>;
  GEMINID_KERNEL_LOOP(UpdateAll<Types>)(k, old_state, gradient, new_state, count, stream);
}

template <typename Gradient>
Status CheckArrays(const ConstSplitState& o, const Gradient* gradient, size_t n,
                   const SplitState& s) {
  return CheckBuffers(
      {Buffer::Of(o.weight, n), Buffer::Of(o.remainder, n), Buffer::Of(o.exp_avg, n),
       Buffer::Of(o.exp_avg_sq, n), Buffer::Of(gradient, n)},
      {Buffer::Of(s.weight, n), Buffer::Of(s.remainder, n), Buffer::Of(s.exp_avg, n),
       Buffer::Of(s.exp_avg_sq, n)});
}
Status CheckArrays(const ConstMasterState& o, const float* gradient, size_t n,
                   const MasterState& s) {
  return CheckBuffers(
      {Buffer::Of(o.weight, n), Buffer::Of(o.exp_avg, n), Buffer::Of(o.exp_avg_sq, n),
       Buffer::Of(gradient, n)},
      {Buffer::Of(s.weight, n), Buffer::Of(s.exp_avg, n), Buffer::Of(s.exp_avg_sq, n)});
}

// For the overlap checks, state that is updated in place is output only.
template <typename Gradient>
Status CheckArrays(const Gradient* gradient, size_t n, const SplitState& s) {
  return CheckBuffers({Buffer::Of(gradient, n)},
                      {Buffer::Of(s.weight, n), Buffer::Of(s.remainder, n),
                       Buffer::Of(s.exp_avg, n), Buffer::Of(s.exp_avg_sq, n)});
}
Status CheckArrays(const float* gradient, size_t n, const MasterState& s) {
  return CheckBuffers({Buffer::Of(gradient, n)}, {Buffer::Of(s.weight, n), Buffer::Of(s.exp_avg, n),
                                                  Buffer::Of(s.exp_avg_sq, n)});
}

template <class OldState, typename Gradient, class NewState>
Status OutOfPlace(const AdamWOptions& options, const OldState& old_state, const Gradient* gradient,
                  size_t count, const NewState& new_state) {
  const ScopedFloatEnvironment environment;
  AdamWCoefficients k;
  Status status = DeriveAdamWCoefficients(options, &k);
  if (status == Status::kOk) status = CheckArrays(old_state, gradient, count, new_state);
  if (status != Status::kOk || count == 0) return status;
  Dispatch(k, old_state, gradient, new_state, count, StreamBegin(new_state, count));
  return Status::kOk;
}

template <class OldState, typename Gradient, class NewState>
Status InPlace(const AdamWOptions& options, const OldState& old_state, const Gradient* gradient,
               size_t count, const NewState& state) {
  const ScopedFloatEnvironment environment;
  AdamWCoefficients k;
  Status status = DeriveAdamWCoefficients(options, &k);
  if (status == Status::kOk) status = CheckArrays(gradient, count, state);
  if (status != Status::kOk || count == 0) return status;
  Dispatch(k, old_state, gradient, state, count, /*stream=*/count);
  return Status::kOk;
}

ConstSplitState View(const SplitState& s) {
  return {s.weight, s.remainder, s.exp_avg, s.exp_avg_sq};
}
ConstMasterState View(const MasterState& s) { return {s.weight, s.exp_avg, s.exp_avg_sq}; }

}  // namespace

Status AdamWSplitOutOfPlace(const AdamWOptions& options, const ConstSplitState& old_state,
                            const BFloat16* gradient, size_t count, const SplitState& new_state) {
  return OutOfPlace(options, old_state, gradient, count, new_state);
}

Status AdamWSplitOutOfPlace(const AdamWOptions& options, const ConstSplitState& old_state,
                            const float* gradient, size_t count, const SplitState& new_state) {
  return OutOfPlace(options, old_state, gradient, count, new_state);
}

Status AdamWMasterOutOfPlace(const AdamWOptions& options, const ConstMasterState& old_state,
                             const float* gradient, size_t count, const MasterState& new_state) {
  return OutOfPlace(options, old_state, gradient, count, new_state);
}

Status AdamWSplitInPlace(const AdamWOptions& options, const SplitState& state,
                         const BFloat16* gradient, size_t count) {
  return InPlace(options, View(state), gradient, count, state);
}

Status AdamWSplitInPlace(const AdamWOptions& options, const SplitState& state,
                         const float* gradient, size_t count) {
  return InPlace(options, View(state), gradient, count, state);
}

Status AdamWMasterInPlace(const AdamWOptions& options, const MasterState& state,
                          const float* gradient, size_t count) {
  return InPlace(options, View(state), gradient, count, state);
}

}  // namespace geminid::kernels
#endif  // HWY_ONCE
