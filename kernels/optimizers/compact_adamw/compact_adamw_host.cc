#include "kernels/optimizers/compact_adamw/checks.h"
#include "kernels/optimizers/compact_adamw/compact_adamw.h"
#include "kernels/runtime/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optimizers/compact_adamw/compact_adamw_host.cc"
#include <algorithm>
#include <array>
#include <cstring>

#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/numeric/quantise/block_lanes-inl.h"
#include "kernels/numeric/quantise/stochastic_rounding_rule.h"
#include "kernels/optimizers/adamw/adamw_coefficients.h"
#include "kernels/optimizers/adamw/update_lanes-inl.h"
#include "kernels/optimizers/compact_adamw/compact_state.h"
#include "kernels/runtime/common/buffers.h"
#include "kernels/runtime/common/float_environment.h"
#include "kernels/runtime/simd/lanes-inl.h"
#include "kernels/runtime/simd/pairs-inl.h"

// X(weights, moments, gradient) for every instance.
#ifndef GEMINID_COMPACT_ADAMW_INSTANCES
#define GEMINID_COMPACT_ADAMW_INSTANCES(X)   \
  X(SplitWeights, EightBitMoments, BFloat16) \
  X(SplitWeights, EightBitMoments, float)    \
  X(MasterWeights, EightBitMoments, float)   \
  X(SplitWeights, BFloat16Moments, BFloat16) \
  X(SplitWeights, BFloat16Moments, float)    \
  X(MasterWeights, BFloat16Moments, float)

namespace geminid::kernels {

struct CompactStep {
  AdamWCoefficients k;
  uint64_t step;
  uint64_t first_element;
  bool stream;
};

}  // namespace geminid::kernels
#endif

// Called twice a loop, which -O2 takes for too often.
#undef GEMINID_INLINE_LAMBDA
#define GEMINID_INLINE_LAMBDA HWY_ATTR __attribute__((always_inline))

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {
namespace {

template <class D>
HWY_INLINE Pair<D> LoadWeightPair(D d, const SplitWeights& from, size_t i) {
  return LoadMasterPair(d, from.weight + i, from.remainder + i);
}
template <class D>
HWY_INLINE Pair<D> LoadWeightPair(D d, const MasterWeights& from, size_t i) {
  return LoadPair(d, from.weight + i);
}
template <class D>
HWY_INLINE void StoreWeightPair(D /* tag */, Pair<D> w, const SplitWeights& to, size_t i) {
  const hn::RebindToUnsigned<D> du32;
  const auto half = hn::Set(du32, 0x8000u);
  const auto even = hn::BitCast(du32, w.even), odd = hn::BitCast(du32, w.odd);
  StoreUpperHalves(du32, hn::Add(even, half), hn::Add(odd, half), Bits(to.weight + i));
  StoreLowerHalves(du32, even, odd, to.remainder + i);
}
template <class D>
HWY_INLINE void StoreWeightPair(D d, Pair<D> w, const MasterWeights& to, size_t i) {
  StorePair(d, w, to.weight + i);
}

// The next block, whichever arrays it has: hardware prefetchers stop at the ends of pages.
template <class State, typename Gradient>
HWY_INLINE void PrefetchBlock(const State& state, const Gradient* gradient) {
  constexpr size_t kLineBytes = 64;
  const auto prefetch = [](const auto* a, const auto*) {
    const auto* bytes = reinterpret_cast<const char*>(a + kQuantiseBlock);
    for (size_t at = 0; at < kQuantiseBlock * sizeof(*a); at += kLineBytes) {
      hwy::Prefetch(bytes + at);
    }
  };
  ForEachArray(state, state, prefetch, [](const float*, const float*) {});
  prefetch(gradient, gradient);
}

// Codes of a block of values whose scale is known.
template <class Encode>
HWY_INLINE void EncodeBlock(size_t step, float scale, uint8_t* codes, Encode encode) {
  if (HWY_UNLIKELY(scale != scale)) {
    std::memset(codes, 0, kQuantiseBlock);
  } else {
    for (size_t i = 0; i < kQuantiseBlock; i += step) encode(i);
  }
}

template <class D, class VI32>
HWY_INLINE uint32_t LargestLane(D /* tag */, VI32 bits) {
  const hn::RebindToSigned<D> di32;
  return static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(di32, bits)));
}

// One block of 8-bit moments: they can be coded when the largest of all 256 is known.
template <class D, class Weights, typename Gradient>
HWY_INLINE void UpdateBlock(D d, const CompactStep& step, uint64_t /* index */,
                            const CompactState<Weights, EightBitMoments>& from,
                            const Gradient* gradient,
                            const CompactState<Weights, EightBitMoments>& to) {
  const AdamWCoefficients k = step.k;
  const hn::RebindToUnsigned<D> du32;
  const hn::RebindToSigned<D> di32;
  alignas(64) float avg[kQuantiseBlock];  // in pairs of vectors
  alignas(64) float root[kQuantiseBlock];
  const size_t n = hn::Lanes(d);
  const Decoder<D, kSignedPieces> decode_avg(d, kSignedDecoding, *from.moments.exp_avg_scale);
  const Decoder<D, kUnsignedPieces> decode_root(d, kUnsignedDecoding,
                                                *from.moments.exp_avg_sq_root_scale);
  auto largest_avg = hn::Zero(di32), largest_root = hn::Zero(di32);
  // Three short loops instead of a long one: more of a short chain of operations fits the window in
  // which a processor looks for the next that is ready.
  for (size_t i = 0; i < kQuantiseBlock; i += 2 * n) {
    const auto m = LoadCodePair(du32, from.moments.exp_avg + i);
    hn::Store(DecodeSignedLanes(d, decode_avg, m.even), d, avg + i);
    hn::Store(DecodeSignedLanes(d, decode_avg, m.odd), d, avg + i + n);
    const auto r = LoadCodePair(du32, from.moments.exp_avg_sq_root + i);
    hn::Store(DecodeUnsignedLanes(d, decode_root, r.even), d, root + i);
    hn::Store(DecodeUnsignedLanes(d, decode_root, r.odd), d, root + i + n);
  }
  const auto update = [&](size_t i, hn::Vec<D> g, hn::Vec<D>& w) GEMINID_INLINE_LAMBDA {
    auto m = hn::Load(d, avg + i);
    const auto old_root = hn::Load(d, root + i);
    auto v = hn::Mul(old_root, old_root);
    const auto new_root = Update(d, k, g, w, m, v);
    CanonicaliseState(d, w, m, v);
    hn::Store(m, d, avg + i);
    hn::Store(new_root, d, root + i);
    largest_avg = LargestBits(d, largest_avg, m);
    largest_root = LargestBits(d, largest_root, new_root);
  };
  for (size_t i = 0; i < kQuantiseBlock; i += 2 * n) {
    auto w = LoadWeightPair(d, from.weights, i);
    const auto g = LoadPair(d, gradient + i);
    update(i, g.even, w.even);
    update(i + n, g.odd, w.odd);
    StoreWeightPair(d, w, to.weights, i);
  }
  const QuantiseScale avg_scale = ScaleOfLargest(LargestLane(d, largest_avg));
  const QuantiseScale root_scale = ScaleOfLargest(LargestLane(d, largest_root));
  const Encoder<D, kSignedPieces> code_avg(d, kSignedMap, kSignedLines, kSignedDecades,
                                           avg_scale.inverse);
  const Encoder<D, kUnsignedPieces> code_root(d, kUnsignedMap, kUnsignedLines, kUnsignedDecades,
                                              root_scale.inverse);
  EncodeBlock(2 * n, avg_scale.scale, to.moments.exp_avg, [&](size_t i) GEMINID_INLINE_LAMBDA {
    StoreCodePair(du32,
                  {EncodeSignedLanes(d, code_avg, hn::Load(d, avg + i)),
                   EncodeSignedLanes(d, code_avg, hn::Load(d, avg + i + n))},
                  to.moments.exp_avg + i);
  });
  EncodeBlock(
      2 * n, root_scale.scale, to.moments.exp_avg_sq_root, [&](size_t i) GEMINID_INLINE_LAMBDA {
        StoreCodePair(du32,
                      {code_root(hn::Load(d, root + i)), code_root(hn::Load(d, root + i + n))},
                      to.moments.exp_avg_sq_root + i);
      });
  *to.moments.exp_avg_scale = avg_scale.scale;
  *to.moments.exp_avg_sq_root_scale = root_scale.scale;
}

// RoundingBits for vectors.
template <class DU32, class V = hn::Vec<DU32>>
HWY_INLINE V RandomLanes(DU32 du32, V key, V index_low) {
  V x = hn::Mul(hn::Xor(index_low, key), hn::Set(du32, kMix32Multiplier1));
  x = hn::Add(hn::Xor(x, hn::ShiftRight<15>(x)), key);
  x = hn::Mul(x, hn::Set(du32, kMix32Multiplier2));
  return hn::Xor(x, hn::ShiftRight<16>(x));
}

// One block of bf16 moments. `index` is that of its first element. Two loops, as for 8-bit moments.
template <class D, class Weights, typename Gradient>
HWY_INLINE void UpdateBlock(D d, const CompactStep& step, uint64_t index,
                            const CompactState<Weights, BFloat16Moments>& from,
                            const Gradient* gradient,
                            const CompactState<Weights, BFloat16Moments>& to) {
  const AdamWCoefficients k = step.k;
  const hn::RebindToUnsigned<D> du32;
  const size_t n = hn::Lanes(d);
  alignas(64) uint32_t avg[kQuantiseBlock];  // bits of the moments, in pairs of vectors
  alignas(64) uint32_t avg_sq[kQuantiseBlock];
  for (size_t i = 0; i < kQuantiseBlock; i += 2 * n) {
    auto w = LoadWeightPair(d, from.weights, i);
    auto m = LoadPair(d, from.moments.exp_avg + i);
    auto v = LoadPair(d, from.moments.exp_avg_sq + i);
    const auto g = LoadPair(d, gradient + i);
    Update(d, k, g.even, w.even, m.even, v.even);
    Update(d, k, g.odd, w.odd, m.odd, v.odd);
    CanonicaliseState(d, w.even, m.even, v.even);
    CanonicaliseState(d, w.odd, m.odd, v.odd);
    hn::Store(hn::BitCast(du32, m.even), du32, avg + i);
    hn::Store(hn::BitCast(du32, m.odd), du32, avg + i + n);
    hn::Store(hn::BitCast(du32, v.even), du32, avg_sq + i);
    hn::Store(hn::BitCast(du32, v.odd), du32, avg_sq + i + n);
    StoreWeightPair(d, w, to.weights, i);
  }
  const auto low_half = hn::Set(du32, 0xFFFFu);
  const auto key = hn::Set(du32, RoundingKey(step.step, index >> 32));
  auto even =
      hn::Add(hn::ShiftLeft<1>(hn::Iota(du32, 0)), hn::Set(du32, static_cast<uint32_t>(index)));
  for (size_t i = 0; i < kQuantiseBlock; i += 2 * n) {
    const auto random0 = RandomLanes(du32, key, even);
    const auto random1 = RandomLanes(du32, key, hn::Add(even, hn::Set(du32, 1)));
    StoreUpperHalves(du32, hn::Add(hn::Load(du32, avg + i), hn::And(random0, low_half)),
                     hn::Add(hn::Load(du32, avg + i + n), hn::And(random1, low_half)),
                     Bits(to.moments.exp_avg + i));
    StoreUpperHalves(du32, hn::Add(hn::Load(du32, avg_sq + i), hn::ShiftRight<16>(random0)),
                     hn::Add(hn::Load(du32, avg_sq + i + n), hn::ShiftRight<16>(random1)),
                     Bits(to.moments.exp_avg_sq + i));
    even = hn::Add(even, hn::Set(du32, static_cast<uint32_t>(2 * n)));
  }
}

// A block from the first-level cache to whole cache lines of memory, past the caches.
template <class State>
HWY_INLINE void StreamBlock(const State& from, const State& to) {
  ForEachArray(
      from, to,
      [](const auto* a, auto* b) {
        const hn::ScalableTag<uint8_t> du8;
        const auto* in = reinterpret_cast<const uint8_t*>(a);
        auto* out = reinterpret_cast<uint8_t*>(b);
        for (size_t i = 0; i < kQuantiseBlock * sizeof(*a); i += hn::Lanes(du8)) {
          hn::Stream(hn::Load(du8, in + i), du8, out + i);
        }
      },
      [](const float* a, float* b) { *b = *a; });
}

template <class Weights, class Moments, typename Gradient>
HWY_INLINE void UpdateAll(const CompactStep& step, const CompactState<Weights, Moments>& old_state,
                          const Gradient* gradient, size_t count,
                          const CompactState<Weights, Moments>& new_state) {
  const hn::CappedTag<float, LineTable::kEntries> d;
  BlockStorage storage;
  const auto staged = storage.View<Weights, Moments>();
  const size_t whole = count - count % kQuantiseBlock;
  for (size_t i = 0; i < whole; i += kQuantiseBlock) {
    const auto to = At(new_state, i);
    PrefetchBlock(At(old_state, i), gradient + i);
    UpdateBlock(d, step, step.first_element + i, At(old_state, i), gradient + i,
                step.stream ? staged : to);
    if (step.stream) StreamBlock(staged, to);
  }
  if (step.stream) hwy::FlushStream();
  if (whole == count) return;
  // The rest is padded with zeros, which stay below the largest of the real values.
  storage = BlockStorage();
  Gradient padded[kQuantiseBlock] = {};
  std::copy_n(gradient + whole, count - whole, padded);
  CopyBlock(At(old_state, whole), count - whole, staged);
  UpdateBlock(d, step, step.first_element + whole, staged, padded, staged);
  CopyBlock(staged, count - whole, At(new_state, whole));
}

#define GEMINID_DEFINE_RUN(Weights, Moments, Gradient)                                           \
  void Run##Weights##Moments##Gradient(                                                          \
      const CompactStep& step, const CompactState<Weights, Moments>& old_state,                  \
      const Gradient* gradient, size_t count, const CompactState<Weights, Moments>& new_state) { \
    UpdateAll(step, old_state, gradient, count, new_state);                                      \
  }
GEMINID_COMPACT_ADAMW_INSTANCES(GEMINID_DEFINE_RUN)
#undef GEMINID_DEFINE_RUN

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace geminid::kernels {
namespace {

#define GEMINID_DEFINE_DISPATCH(Weights, Moments, Gradient)                               \
  HWY_EXPORT(Run##Weights##Moments##Gradient);                                            \
  void Dispatch(const CompactStep& step, const CompactState<Weights, Moments>& old_state, \
                const Gradient* gradient, size_t count,                                   \
                const CompactState<Weights, Moments>& new_state) {                        \
    HWY_DYNAMIC_DISPATCH(Run##Weights##Moments##Gradient)                                 \
    (step, old_state, gradient, count, new_state);                                        \
  }
GEMINID_COMPACT_ADAMW_INSTANCES(GEMINID_DEFINE_DISPATCH)
#undef GEMINID_DEFINE_DISPATCH

template <class State>
bool AlignedToLines(const State& state) {
  constexpr size_t kCacheLineBytes = 64;
  bool aligned = true;
  ForEachArray(
      state, state,
      [&](const auto* a, const auto*) {
        aligned = aligned && reinterpret_cast<uintptr_t>(a) % kCacheLineBytes == 0;
      },
      [](const float*, const float*) {});
  return aligned;
}

}  // namespace

template <class Weights, class Moments, typename Gradient>
Status AdamWCompact(const AdamWOptions& options, uint64_t first_element,
                    const CompactState<Weights, Moments>& old_state, const Gradient* gradient,
                    size_t count, const CompactState<Weights, Moments>& new_state) {
  const ScopedFloatEnvironment environment;
  CompactStep step = {.k = {}, .step = options.step, .first_element = first_element, .stream = {}};
  bool in_place = false;
  Status status = DeriveAdamWCoefficients(options, &step.k);
  if (status == Status::kOk) {
    status = CheckCompactStep(first_element, old_state, gradient, count, new_state, &in_place);
  }
  if (status != Status::kOk || count == 0) return status;
  step.stream = !in_place && AlignedToLines(new_state);
  Dispatch(step, old_state, gradient, count, new_state);
  return Status::kOk;
}

#define GEMINID_INSTANTIATE(Weights, Moments, Gradient)                                        \
  template Status AdamWCompact(const AdamWOptions&, uint64_t,                                  \
                               const CompactState<Weights, Moments>&, const Gradient*, size_t, \
                               const CompactState<Weights, Moments>&);
GEMINID_COMPACT_ADAMW_INSTANCES(GEMINID_INSTANTIATE)
#undef GEMINID_INSTANTIATE

}  // namespace geminid::kernels
#endif  // HWY_ONCE
