#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/optimizers/step/staging.h"
#include "kernels/runtime/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optimizers/step/staging_host.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/numeric/norm/norm.h"
#include "kernels/numeric/split_master/split_master.h"
#include "kernels/numeric/stochastic_rounding/stochastic_lanes-inl.h"
#include "kernels/optimizers/step/elementwise.h"
#include "kernels/runtime/simd/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {
namespace {

template <typename T>
HWY_INLINE void Widen(const T* from, size_t count, float* to) {
  const hn::ScalableTag<float> d;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    hwy::Prefetch(from + i + kPrefetchElements);
    hn::StoreU(LoadFloats(d, from + i), d, to + i);
  }
  const hn::CappedTag<float, 1> d1;
  for (; i < count; ++i) hn::StoreU(LoadFloats(d1, from + i), d1, to + i);
}
void WidenBFloat16(const BFloat16* from, size_t count, float* to) { Widen(from, count, to); }

void Join(const BFloat16* weight, const int16_t* remainder, size_t count, float* to) {
  const hn::ScalableTag<float> d;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    hwy::Prefetch(weight + i + kPrefetchElements);
    hwy::Prefetch(remainder + i + kPrefetchElements);
    hn::StoreU(LoadMaster(d, weight + i, remainder + i), d, to + i);
  }
  const hn::CappedTag<float, 1> d1;
  for (; i < count; ++i) hn::StoreU(LoadMaster(d1, weight + i, remainder + i), d1, to + i);
}

// Converts a vector of masters to 16 bits each.
struct ToSplitWeight {
  template <class D>
  HWY_INLINE auto operator()(D /* tag */, hn::Vec<D> v) const {
    const hn::RebindToUnsigned<D> du32;
    return RoundedUpperHalves(du32, hn::BitCast(du32, v));
  }
};
struct ToRemainder {
  template <class D>
  HWY_INLINE auto operator()(D /* tag */, hn::Vec<D> v) const {
    const hn::RebindToUnsigned<D> du32;
    const hn::Rebind<uint16_t, D> du16;
    return hn::BitCast(du16, LowerHalves(du32, hn::BitCast(du32, v)));
  }
};

// Two vectors at a time to stream: a full vector of 16-bit halves is the least that can be.
template <class Convert>
HWY_INLINE void StoreHalves(Convert convert, const float* from, size_t count, bool stream,
                            uint16_t* to) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<uint16_t, decltype(d)> du16;
  const size_t n = hn::Lanes(d);
  size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::Repartition<uint16_t, decltype(d)> full;
  for (; stream && i + 2 * n <= count; i += 2 * n) {
    const auto lower = convert(d, hn::LoadU(d, from + i));
    const auto upper = convert(d, hn::LoadU(d, from + i + n));
    hn::Stream(hn::Combine(full, upper, lower), full, to + i);
  }
#else
  (void)stream;
#endif
  for (; i + n <= count; i += n) hn::StoreU(convert(d, hn::LoadU(d, from + i)), du16, to + i);
  const hn::CappedTag<float, 1> d1;
  const hn::Rebind<uint16_t, decltype(d1)> half1;
  for (; i < count; ++i) hn::StoreU(convert(d1, hn::LoadU(d1, from + i)), half1, to + i);
}

void StoreSplit(const float* from, size_t count, bool stream, BFloat16* weight,
                int16_t* remainder) {
  StoreHalves(ToSplitWeight(), from, count, stream, Bits(weight));
  StoreHalves(ToRemainder(), from, count, stream, reinterpret_cast<uint16_t*>(remainder));
}

// Rounds stochastically: the first of two arrays by the lower half of an element's random bits, the
// second by the upper half. `first` is the lower half of the first element's index; all elements
// share the upper half of their indices.
template <bool kSecond>
HWY_INLINE void Round(const float* from, uint32_t key, uint32_t first, size_t count, bool stream,
                      uint16_t* to) {
  size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du32;
  const hn::Repartition<uint16_t, decltype(d)> du16;
  const size_t n = hn::Lanes(d);
  const auto keys = hn::Set(du32, key);
  const auto rounded = [&](size_t at) HWY_ATTR {
    const auto index = hn::Iota(du32, first + static_cast<uint32_t>(at));
    const auto random = RandomLanes(du32, keys, index);
    const auto half =
        kSecond ? hn::ShiftRight<16>(random) : hn::And(random, hn::Set(du32, 0xFFFFu));
    return hn::BitCast(du16, hn::Add(hn::BitCast(du32, hn::LoadU(d, from + at)), half));
  };
  for (; i + 2 * n <= count; i += 2 * n) {
    const auto halves = hn::ConcatOdd(du16, rounded(i + n), rounded(i));
    if (stream) {
      hn::Stream(halves, du16, to + i);
    } else {
      hn::StoreU(halves, du16, to + i);
    }
  }
#else
  (void)stream;
#endif
  for (; i < count; ++i) {
    const uint32_t random = RoundingBits(key, first + static_cast<uint32_t>(i));
    to[i] = RoundStochastically(from[i], kSecond ? random >> 16 : random & 0xFFFFu).bits;
  }
}
void RoundFirst(const float* from, uint32_t key, uint32_t first, size_t count, bool stream,
                BFloat16* to) {
  Round<false>(from, key, first, count, stream, Bits(to));
}
void RoundSecond(const float* from, uint32_t key, uint32_t first, size_t count, bool stream,
                 BFloat16* to) {
  Round<true>(from, key, first, count, stream, Bits(to));
}

double LaneSquares(const float* values, size_t count) {
  const hn::CappedTag<double, kNormLanes / 2> d;
  const hn::Rebind<float, decltype(d)> df;
  const size_t n = hn::Lanes(d);
  alignas(64) double lanes[kNormLanes] = {};
  const auto add = [&](const float* row) {
    for (size_t lane = 0; lane < kNormLanes; lane += n) {
      const auto x = hn::PromoteTo(d, hn::LoadU(df, row + lane));
      hn::Store(hn::Add(hn::Load(d, lanes + lane), hn::Mul(x, x)), d, lanes + lane);
    }
  };
  size_t i = 0;
  for (; i + kNormLanes <= count; i += kNormLanes) add(values + i);
  if (i < count) {
    float rest[kNormLanes] = {};  // adding zeros changes nothing: no lane is ever -0
    std::copy(values + i, values + count, rest);
    add(rest);
  }
  for (size_t half = kNormLanes / 2; half != 0; half /= 2) {
    for (size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

void ColumnSquares(const float* values, size_t count, double* columns) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    const auto x = hn::PromoteTo(d, hn::LoadU(df, values + i));
    hn::StoreU(hn::Add(hn::LoadU(d, columns + i), hn::Mul(x, x)), d, columns + i);
  }
  for (; i < count; ++i) {
    const double x = values[i];
    columns[i] += x * x;
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace geminid::kernels {

// Prefetches the block after this one, of an array that is used in place.
static const float* PrefetchNext(const float* values, size_t count) {
  constexpr size_t kLineFloats = 64 / sizeof(float);
  for (size_t i = 0; i < count; i += kLineFloats) hwy::Prefetch(values + i + kPrefetchElements);
  return values;
}

const float* StageGradient(const GradientArray& gradient, size_t count, float* space) {
  if (gradient.type == GradientType::kFloat) {
    return PrefetchNext(static_cast<const float*>(gradient.data), count);
  }
  GEMINID_KERNEL_LOOP(WidenBFloat16)(static_cast<const BFloat16*>(gradient.data), count, space);
  return space;
}

const float* StageWeights(const ConstParameterArrays& arrays, size_t count, float* space) {
  if (arrays.form != WeightForm::kSplit) return PrefetchNext(arrays.master, count);
  GEMINID_KERNEL_LOOP(Join)(arrays.bfloat16, arrays.remainder, count, space);
  return space;
}

const float* StageState(const ConstParameterArrays& arrays, int index, size_t count, float* space) {
  if (arrays.state_form == StateForm::kFloat) return arrays.state[index];
  GEMINID_KERNEL_LOOP(WidenBFloat16)(arrays.small_state[index], count, space);
  return space;
}

void StoreStates(const float* const* values, int states, size_t count, bool stream,
                 const ParameterArrays& arrays) {
  const uint64_t first = arrays.rounding.first_element;
  for (size_t at = 0; at < count;) {
    const uint64_t index = first + at;
    const auto low = static_cast<uint32_t>(index);
    const uint32_t key = RoundingKey(arrays.rounding.seed, index >> 32);
    const uint64_t before_next_key = (uint64_t{1} << 32) - low;
    const size_t part = std::min<uint64_t>(count - at, before_next_key);
    const bool past_cache = stream && at == 0;  // from the next key on arrays may not be aligned
    if (states > 0) {
      GEMINID_KERNEL_LOOP(RoundFirst)
      (values[0] + at, key, low, part, past_cache, arrays.small_state[0] + at);
    }
    if (states > 1) {
      GEMINID_KERNEL_LOOP(RoundSecond)
      (values[1] + at, key, low, part, past_cache, arrays.small_state[1] + at);
    }
    at += part;
  }
}

void StoreWeights(const float* masters, size_t count, bool stream, const ParameterArrays& arrays) {
  GEMINID_KERNEL_LOOP(StoreSplit)(masters, count, stream, arrays.bfloat16, arrays.remainder);
}

double BlockSquares(const float* values, size_t count) {
  return GEMINID_KERNEL_LOOP(LaneSquares)(values, count);
}

void AddColumnSquares(const float* values, size_t count, double* columns) {
  GEMINID_KERNEL_LOOP(ColumnSquares)(values, count, columns);
}

}  // namespace geminid::kernels
#endif  // HWY_ONCE
