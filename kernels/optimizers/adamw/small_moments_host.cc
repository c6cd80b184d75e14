#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/optimizers/adamw/small_moments.h"
#include "kernels/runtime/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optimizers/adamw/small_moments_host.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/numeric/stochastic_rounding/stochastic_lanes-inl.h"
#include "kernels/optimizers/adamw/update_lanes-inl.h"
#include "kernels/runtime/simd/lanes-inl.h"
#include "kernels/runtime/simd/pairs-inl.h"

// Shared by all instruction sets, so compiled once.
#ifndef GEMINID_SMALL_MOMENTS_ONCE
#define GEMINID_SMALL_MOMENTS_ONCE
namespace geminid::kernels {

// Elements that are computed before any of them is stored past the cache.
inline constexpr size_t kSmallMomentsBlock = 256;

struct SmallSplit {
  BFloat16* weight;
  int16_t* remainder;
};
struct SmallMaster {
  float* weight;
};
// Weights in one of the two forms, and moments. The old state is only read.
template <class Weights>
struct SmallState {
  Weights weights;
  BFloat16* exp_avg;
  BFloat16* exp_avg_sq;
};

struct SmallStep {
  AdamWCoefficients k;
  StateRounding rounding;
  bool stream;
};

}  // namespace geminid::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {
namespace {

// Calls each(a's array, b's array).
template <class Each>
HWY_INLINE void ForEachArray(const SmallSplit& a, const SmallSplit& b, Each each) {
  each(a.weight, b.weight);
  each(a.remainder, b.remainder);
}
template <class Each>
HWY_INLINE void ForEachArray(const SmallMaster& a, const SmallMaster& b, Each each) {
  each(a.weight, b.weight);
}
template <class Weights, class Each>
HWY_INLINE void ForEachArray(const SmallState<Weights>& a, const SmallState<Weights>& b,
                             Each each) {
  ForEachArray(a.weights, b.weights, each);
  each(a.exp_avg, b.exp_avg);
  each(a.exp_avg_sq, b.exp_avg_sq);
}

HWY_INLINE SmallSplit At(const SmallSplit& w, size_t i) { return {w.weight + i, w.remainder + i}; }
HWY_INLINE SmallMaster At(const SmallMaster& w, size_t i) { return {w.weight + i}; }
template <class Weights>
HWY_INLINE SmallState<Weights> At(const SmallState<Weights>& s, size_t i) {
  return {At(s.weights, i), s.exp_avg + i, s.exp_avg_sq + i};
}

template <class D>
HWY_INLINE Pair<D> LoadWeightPair(D d, const SmallSplit& from, size_t i) {
  return LoadMasterPair(d, from.weight + i, from.remainder + i);
}
template <class D>
HWY_INLINE Pair<D> LoadWeightPair(D d, const SmallMaster& from, size_t i) {
  return LoadPair(d, from.weight + i);
}
template <class D>
HWY_INLINE void StoreWeightPair(D /* tag */, Pair<D> w, const SmallSplit& to, size_t i) {
  const hn::RebindToUnsigned<D> du32;
  const hn::Vec<decltype(du32)> half = hn::Set(du32, 0x8000u);
  const auto even = hn::BitCast(du32, w.even), odd = hn::BitCast(du32, w.odd);
  StoreUpperHalves(du32, hn::Add(even, half), hn::Add(odd, half), Bits(to.weight + i));
  StoreLowerHalves(du32, even, odd, to.remainder + i);
}
template <class D>
HWY_INLINE void StoreWeightPair(D d, Pair<D> w, const SmallMaster& to, size_t i) {
  StorePair(d, w, to.weight + i);
}

// Prefetches the next block of each array: hardware prefetchers stop at the ends of pages.
template <class State, typename Gradient>
HWY_INLINE void PrefetchBlock(const State& state, const Gradient* gradient) {
  constexpr size_t kLineBytes = 64;
  const auto prefetch = [](const auto* a, const auto*) {
    const auto* bytes = reinterpret_cast<const char*>(a + kSmallMomentsBlock);
    for (size_t at = 0; at < kSmallMomentsBlock * sizeof(*a); at += kLineBytes) {
      hwy::Prefetch(bytes + at);
    }
  };
  ForEachArray(state, state, prefetch);
  prefetch(gradient, gradient);
}

// Updates one block whose first element has the index `index`. There are two loops: more iterations
// of a short chain of operations fit into a processor's out-of-order window.
template <class D, class Weights, typename Gradient>
HWY_INLINE void UpdateBlock(D d, const SmallStep& step, uint64_t index,
                            const SmallState<Weights>& from, const Gradient* gradient,
                            const SmallState<Weights>& to) {
  const AdamWCoefficients k = step.k;
  const hn::RebindToUnsigned<D> du32;
  const size_t n = hn::Lanes(d);
  alignas(64) uint32_t avg[kSmallMomentsBlock];  // bits of the moments, in pairs of vectors
  alignas(64) uint32_t avg_sq[kSmallMomentsBlock];
  for (size_t i = 0; i < kSmallMomentsBlock; i += 2 * n) {
    auto w = LoadWeightPair(d, from.weights, i);
    auto m = LoadPair(d, from.exp_avg + i);
    auto v = LoadPair(d, from.exp_avg_sq + i);
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
  const auto key = hn::Set(du32, RoundingKey(step.rounding.seed, index >> 32));
  auto even =
      hn::Add(hn::ShiftLeft<1>(hn::Iota(du32, 0)), hn::Set(du32, static_cast<uint32_t>(index)));
  for (size_t i = 0; i < kSmallMomentsBlock; i += 2 * n) {
    const auto random0 = RandomLanes(du32, key, even);
    const auto random1 = RandomLanes(du32, key, hn::Add(even, hn::Set(du32, 1)));
    StoreUpperHalves(du32, hn::Add(hn::Load(du32, avg + i), hn::And(random0, low_half)),
                     hn::Add(hn::Load(du32, avg + i + n), hn::And(random1, low_half)),
                     Bits(to.exp_avg + i));
    StoreUpperHalves(du32, hn::Add(hn::Load(du32, avg_sq + i), hn::ShiftRight<16>(random0)),
                     hn::Add(hn::Load(du32, avg_sq + i + n), hn::ShiftRight<16>(random1)),
                     Bits(to.exp_avg_sq + i));
    even = hn::Add(even, hn::Set(du32, static_cast<uint32_t>(2 * n)));
  }
}

// One block of either form in the first-level cache, zero at first.
class BlockStorage {
 public:
  template <class Weights>
  SmallState<Weights> View() {
    return {Of(static_cast<Weights*>(nullptr)), exp_avg_, exp_avg_sq_};
  }

 private:
  SmallSplit Of(const SmallSplit* /* type */) { return {weight_, remainder_}; }
  SmallMaster Of(const SmallMaster* /* type */) { return {master_}; }

  alignas(64) BFloat16 weight_[kSmallMomentsBlock] = {};
  alignas(64) int16_t remainder_[kSmallMomentsBlock] = {};
  alignas(64) float master_[kSmallMomentsBlock] = {};
  alignas(64) BFloat16 exp_avg_[kSmallMomentsBlock] = {};
  alignas(64) BFloat16 exp_avg_sq_[kSmallMomentsBlock] = {};
};

// Copies a block from the first-level cache to whole cache lines of memory, past the caches.
template <class State>
HWY_INLINE void StreamBlock(const State& from, const State& to) {
  ForEachArray(from, to, [](const auto* a, auto* b) HWY_ATTR {
    const hn::ScalableTag<uint8_t> du8;
    const auto* in = reinterpret_cast<const uint8_t*>(a);
    auto* out = reinterpret_cast<uint8_t*>(b);
    for (size_t i = 0; i < kSmallMomentsBlock * sizeof(*a); i += hn::Lanes(du8)) {
      hn::Stream(hn::Load(du8, in + i), du8, out + i);
    }
  });
}

template <class State>
HWY_INLINE void CopyElements(const State& from, size_t count, const State& to) {
  ForEachArray(from, to, [count](const auto* a, auto* b) { std::copy_n(a, count, b); });
}

// Updates elements whose indices share their upper 32 bits, from rounding.first_element on.
template <class Types, class Weights = typename Types::first_type,
          typename Gradient = typename Types::second_type>
void UpdateAll(const SmallStep& step, const SmallState<Weights>& old_state,
               const Gradient* gradient, size_t count, const SmallState<Weights>& new_state) {
  const hn::CappedTag<float, 16> d;
  const uint64_t first = step.rounding.first_element;
  BlockStorage storage;
  const auto staged = storage.View<Weights>();
  const size_t whole = count - count % kSmallMomentsBlock;
  for (size_t i = 0; i < whole; i += kSmallMomentsBlock) {
    const auto to = At(new_state, i);
    PrefetchBlock(At(old_state, i), gradient + i);
    UpdateBlock(d, step, first + i, At(old_state, i), gradient + i, step.stream ? staged : to);
    if (step.stream) StreamBlock(staged, to);
  }
  if (step.stream) hwy::FlushStream();
  if (whole == count) return;
  storage = BlockStorage();
  Gradient padded[kSmallMomentsBlock] = {};
  std::copy_n(gradient + whole, count - whole, padded);
  CopyElements(At(old_state, whole), count - whole, staged);
  UpdateBlock(d, step, first + whole, staged, padded, staged);
  CopyElements(staged, count - whole, At(new_state, whole));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace geminid::kernels {
namespace {

bool OnLine(const void* p) { return reinterpret_cast<uintptr_t>(p) % 64 == 0; }

// The loop only reads old arrays, though through pointers to non-const.
template <class Arrays>
SmallState<SmallSplit> SplitOf(const Arrays& a) {
  return {{const_cast<BFloat16*>(a.bfloat16), const_cast<int16_t*>(a.remainder)},
          const_cast<BFloat16*>(a.small_state[0]),
          const_cast<BFloat16*>(a.small_state[1])};
}
template <class Arrays>
SmallState<SmallMaster> MasterOf(const Arrays& a) {
  return {{const_cast<float*>(a.master)},
          const_cast<BFloat16*>(a.small_state[0]),
          const_cast<BFloat16*>(a.small_state[1])};
}

template <class Weights, typename Gradient>
void Run(const SmallStep& step, const SmallState<Weights>& from, const GradientArray& gradient,
         size_t count, const SmallState<Weights>& to) {
  using Types = std::pair<Weights, Gradient>;
  const auto* const values = static_cast<const Gradient*>(gradient.data);
  GEMINID_KERNEL_LOOP(UpdateAll<Types>)(step, from, values, count, to);
}

// Updates elements whose indices share their upper 32 bits.
void UpdateStretch(const SmallStep& step, const ConstParameterArrays& from,
                   const GradientArray& gradient, size_t count, const ParameterArrays& to) {
  if (to.form == WeightForm::kFloat) {
    Run<SmallMaster, float>(step, MasterOf(from), gradient, count, MasterOf(to));
  } else if (gradient.type == GradientType::kFloat) {
    Run<SmallSplit, float>(step, SplitOf(from), gradient, count, SplitOf(to));
  } else {
    Run<SmallSplit, BFloat16>(step, SplitOf(from), gradient, count, SplitOf(to));
  }
}

bool CanStream(const ConstParameterArrays& from, const ParameterArrays& to) {
  const bool split = to.form == WeightForm::kSplit;
  const bool in_place = split ? from.bfloat16 == to.bfloat16 : from.master == to.master;
  const bool weights = split ? OnLine(to.bfloat16) && OnLine(to.remainder) : OnLine(to.master);
  return !in_place && weights && OnLine(to.small_state[0]) && OnLine(to.small_state[1]);
}

}  // namespace

bool HasSmallMomentsLoop(const ParameterArrays& arrays, const GradientArray& gradient) {
  if (arrays.state_form != StateForm::kBFloat16) return false;
  return arrays.form == WeightForm::kSplit || gradient.type == GradientType::kFloat;
}

void AdamWSmallMoments(const AdamWCoefficients& k, const ConstParameterArrays& old_arrays,
                       const GradientArray& gradient, size_t count,
                       const ParameterArrays& new_arrays) {
  for (size_t at = 0; at < count;) {
    const ParameterArrays to = Advance(new_arrays, at);
    const ConstParameterArrays from = Advance(old_arrays, at);
    const auto low = static_cast<uint32_t>(to.rounding.first_element);
    const size_t part = std::min<uint64_t>(count - at, (uint64_t{1} << 32) - low);
    UpdateStretch({k, to.rounding, CanStream(from, to)}, from, Advance(gradient, at), part, to);
    at += part;
  }
}

}  // namespace geminid::kernels
#endif  // HWY_ONCE
