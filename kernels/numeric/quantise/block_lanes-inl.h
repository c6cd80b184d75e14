// The rule of block_quantise_rule.h for vectors, with its bits. Included once per instruction set,
// as kernels/runtime/simd/lanes-inl.h is.
#if defined(GEMINID_KERNELS_NUMERIC_QUANTISE_BLOCK_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GEMINID_KERNELS_NUMERIC_QUANTISE_BLOCK_LANES_INL_H_
#undef GEMINID_KERNELS_NUMERIC_QUANTISE_BLOCK_LANES_INL_H_
#else
#define GEMINID_KERNELS_NUMERIC_QUANTISE_BLOCK_LANES_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/numeric/quantise/block_quantise_rule.h"
#include "kernels/numeric/quantise/line_table.h"
#include "kernels/runtime/simd/pairs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Loops over the lines of a map become straight code, which keeps them in registers.
#undef GEMINID_UNROLL_LINES
#if defined(__clang__)
#define GEMINID_UNROLL_LINES _Pragma("clang loop unroll(full)")
#else
#define GEMINID_UNROLL_LINES _Pragma("GCC unroll 8")
#endif

// The magnitudes' lines of one map, at hand for a loop.
template <class D, int kPieces>
class Encoder {
  using V = hn::Vec<D>;
  using DU32 = hn::RebindToUnsigned<D>;

 public:
  Encoder(D d, const QuantiseMap<kPieces>& map, const LineTable& lines, const DecadeTable& decades,
          float inverse)
      : inverse_(hn::Set(d, inverse)) {
#if HWY_TARGET <= HWY_AVX3
    low_slope_ = hn::Load(d, lines.low_slope);
    low_offset_ = hn::Load(d, lines.low_offset);
    high_slope_ = hn::Load(d, lines.high_slope);
    high_offset_ = hn::Load(d, lines.high_offset);
    (void)map, (void)decades;
#elif HWY_TARGET <= HWY_AVX2
    corner_ = hn::Load(d, decades.corner);
    slope_ = hn::Load(d, decades.slope);
    offset_ = hn::Load(d, decades.offset);
    first_ = hn::Set(hn::Repartition<uint16_t, D>(), decades.first);
    (void)map, (void)lines;
#else
    GEMINID_UNROLL_LINES
    for (int j = 0; j < kPieces; ++j) {
      slope_[j] = hn::Set(d, map.slope[j]);
      offset_[j] = hn::Set(d, map.offset[j]);
    }
    (void)lines, (void)decades;
#endif
  }

  // Codes of non-negative magnitudes, in the lowest 16 bits of 32-bit lanes; the bits above are
  // noise.
  HWY_INLINE hn::Vec<DU32> operator()(V magnitude) const {
    const D d;
    const DU32 du32;
    const V y = hn::Mul(magnitude, inverse_);
    return hn::BitCast(du32, hn::Add(Least(d, y), hn::Set(d, kRoundToInteger)));
  }

 private:
#if HWY_TARGET <= HWY_AVX3
  // Sixteen lanes hold a pair of binades each, in which at most two lines meet.
  HWY_INLINE V Least(D d, V y) const {
    const DU32 du32;
    const V within = hn::Max(y, hn::Set(d, LineTable::kLowest));
    const auto pair = hn::And(hn::ShiftRight<24>(hn::BitCast(du32, within)), hn::Set(du32, 15u));
    const auto at = hn::IndicesFromVec(d, pair);
    const V low = hn::Add(hn::Mul(y, hn::TableLookupLanes(low_slope_, at)),
                          hn::TableLookupLanes(low_offset_, at));
    const V high = hn::Add(hn::Mul(y, hn::TableLookupLanes(high_slope_, at)),
                           hn::TableLookupLanes(high_offset_, at));
    return hn::Min(low, high);
  }

  V inverse_, low_slope_, low_offset_, high_slope_, high_offset_;
#elif HWY_TARGET <= HWY_AVX2
  // Eight lanes hold a corner each; the line is the one on its left or on its right.
  HWY_INLINE V Least(D d, V y) const {
    const DU32 du32;
    const hn::RebindToSigned<D> di32;
    const VU16 beyond = hn::SaturatedSub(hn::BitCast(DU16(), y), first_);
    const VU16 decades = hn::MulHigh(beyond, hn::Set(DU16(), DecadeTable::kScale));
    const auto nearest = hn::ShiftRight<16>(hn::BitCast(du32, decades));
    const V corner = hn::TableLookupLanes(corner_, hn::IndicesFromVec(d, nearest));
    const auto right = hn::VecFromMask(di32, hn::RebindMask(di32, hn::Ge(y, corner)));
    const auto line = hn::IndicesFromVec(d, hn::Sub(hn::BitCast(di32, nearest), right));
    return hn::Add(hn::Mul(y, hn::TableLookupLanes(slope_, line)),
                   hn::TableLookupLanes(offset_, line));
  }

  using DU16 = hn::Repartition<uint16_t, D>;
  using VU16 = hn::Vec<DU16>;
  V inverse_, corner_, slope_, offset_;
  VU16 first_;
#else
  HWY_INLINE V Least(D /* tag */, V y) const {
    V least = hn::Add(hn::Mul(y, slope_[0]), offset_[0]);
    GEMINID_UNROLL_LINES
    for (int j = 1; j < kPieces; ++j) {
      least = hn::Min(least, hn::Add(hn::Mul(y, slope_[j]), offset_[j]));
    }
    return least;
  }

  V inverse_, slope_[kPieces], offset_[kPieces];
#endif
};

// A map's magnitudes times one block's scale, at hand for a loop.
template <class D, int kPieces>
class Decoder {
  using V = hn::Vec<D>;
  using DU32 = hn::RebindToUnsigned<D>;
  static constexpr uint32_t kEntries = DecodeTable::kEntries;

 public:
  Decoder(D d, const DecodeTable& table, float scale) {
    const V factor = hn::Set(d, scale);
#if HWY_TARGET <= HWY_AVX3
    step_ = hn::Mul(hn::Load(d, table.step), factor);
    base_ = hn::Mul(hn::Load(d, table.base), factor);
#elif HWY_TARGET <= HWY_AVX2
    step_ = hn::Mul(hn::Load(d, table.step), factor);
    base_ = hn::Mul(hn::Load(d, table.base), factor);
    lowest_ = hn::Mul(hn::Set(d, table.base[kEntries - 1]), factor);
#else
    for (size_t i = 0; i < kEntries; i += hn::Lanes(d)) {
      hn::Store(hn::Mul(hn::Load(d, table.step + i), factor), d, step_ + i);
      hn::Store(hn::Mul(hn::Load(d, table.base + i), factor), d, base_ + i);
    }
#endif
  }

  // The magnitudes of codes in 32-bit lanes.
  HWY_INLINE V operator()(hn::Vec<DU32> code) const {
    const D d;
    const DU32 du32;
    const hn::RebindToSigned<D> di32;
    const V u = hn::ConvertTo(d, hn::BitCast(di32, hn::Add(code, hn::Set(du32, 1u))));
#if HWY_TARGET <= HWY_AVX3
    const auto j = hn::And(hn::ShiftRight<23>(hn::BitCast(du32, u)), hn::Set(du32, kEntries - 1));
    const auto at = hn::IndicesFromVec(d, j);
    return hn::Add(hn::Mul(hn::TableLookupLanes(step_, at), u), hn::TableLookupLanes(base_, at));
#elif HWY_TARGET <= HWY_AVX2
    // Eight entries: the last is of j = 8, or of the signed map's j = 0, a zero.
    const auto j = hn::And(hn::ShiftRight<23>(hn::BitCast(du32, u)), hn::Set(du32, 7u));
    const auto at = hn::IndicesFromVec(d, j);
    const V m =
        hn::Add(hn::Mul(hn::TableLookupLanes(step_, at), u), hn::TableLookupLanes(base_, at));
    if constexpr (kPieces < 8) return m;
    // The unsigned map's j = 0: only u = 1 has no bit at the top of its exponent.
    const auto above = hn::BitCast(d, hn::ShiftLeft<1>(hn::BitCast(du32, u)));
    return hn::IfNegativeThenElse(above, m, lowest_);
#else
    const auto at = hn::BitCast(
        di32, hn::And(hn::ShiftRight<23>(hn::BitCast(du32, u)), hn::Set(du32, kEntries - 1)));
    return hn::Add(hn::Mul(hn::GatherIndex(d, step_, at), u), hn::GatherIndex(d, base_, at));
#endif
  }

 private:
#if HWY_TARGET <= HWY_AVX3
  V step_, base_;
#elif HWY_TARGET <= HWY_AVX2
  V step_, base_, lowest_;
#else
  alignas(64) float step_[kEntries];
  alignas(64) float base_[kEntries];
#endif
};

// Codes of 2 Lanes(d) elements in pairs, see kernels/runtime/simd/pairs-inl.h, in 32-bit lanes.
// Bits above a code's eight are noise.
template <class DU32>
HWY_INLINE PairOf<hn::Vec<DU32>> LoadCodePair(DU32 du32, const uint8_t* codes) {
#if HWY_TARGET == HWY_SCALAR
  return {hn::Set(du32, codes[0]), hn::Set(du32, codes[1])};
#else
  const hn::Rebind<uint16_t, DU32> du16;
  const auto both = hn::PromoteTo(du32, hn::LoadU(du16, reinterpret_cast<const uint16_t*>(codes)));
  return {both, hn::ShiftRight<8>(both)};
#endif
}
// Codes without noise up to their sixteenth bit.
template <class DU32>
HWY_INLINE void StoreCodePair(DU32 /* tag */, PairOf<hn::Vec<DU32>> codes, uint8_t* to) {
#if HWY_TARGET == HWY_SCALAR
  to[0] = static_cast<uint8_t>(hn::GetLane(codes.even));
  to[1] = static_cast<uint8_t>(hn::GetLane(codes.odd));
#else
  const hn::Rebind<uint16_t, DU32> du16;
  const auto both = hn::Or(codes.even, hn::ShiftLeft<8>(codes.odd));
  hn::StoreU(hn::TruncateTo(du16, both), du16, reinterpret_cast<uint16_t*>(to));
#endif
}

template <class D, class Magnitudes, class VU32>
HWY_INLINE hn::Vec<D> DecodeSignedLanes(D d, const Magnitudes& decoder, VU32 code) {
  const hn::RebindToUnsigned<D> du32;
  const auto magnitude = decoder(hn::And(code, hn::Set(du32, 0x7Fu)));
  return hn::CopySignToAbs(magnitude, hn::BitCast(d, hn::ShiftLeft<24>(code)));
}
template <class D, class Magnitudes, class VU32>
HWY_INLINE hn::Vec<D> DecodeUnsignedLanes(D /* tag */, const Magnitudes& decoder, VU32 code) {
  const hn::RebindToUnsigned<D> du32;
  return decoder(hn::And(code, hn::Set(du32, 0xFFu)));
}
template <class D, class Magnitudes>
HWY_INLINE auto EncodeSignedLanes(D /* tag */, const Magnitudes& encoder, hn::Vec<D> value) {
  const hn::RebindToUnsigned<D> du32;
  const auto sign = hn::And(hn::ShiftRight<24>(hn::BitCast(du32, value)), hn::Set(du32, 0x80u));
  return hn::Or(encoder(hn::Abs(value)), sign);
}

// max(largest, bits of |value|), as integers.
template <class D, class VI32>
HWY_INLINE VI32 LargestBits(D /* tag */, VI32 largest, hn::Vec<D> value) {
  const hn::RebindToSigned<D> di32;
  return hn::Max(largest, hn::BitCast(di32, hn::Abs(value)));
}

}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
