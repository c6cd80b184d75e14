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

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The magnitudes' lines of one map, at hand for a loop.
template <class D, int kPieces>
class Encoder {
  using V = hn::Vec<D>;
  using DU32 = hn::RebindToUnsigned<D>;

 public:
  Encoder(D d, const QuantiseMap<kPieces>& map, const LineTable& lines, float inverse)
      : map_(map), inverse_(hn::Set(d, inverse)) {
#if HWY_TARGET <= HWY_AVX3
    low_slope_ = hn::Load(d, lines.low_slope);
    low_offset_ = hn::Load(d, lines.low_offset);
    high_slope_ = hn::Load(d, lines.high_slope);
    high_offset_ = hn::Load(d, lines.high_offset);
#else
    (void)lines;
#endif
  }

  // Codes of non-negative magnitudes, in the lowest bits of 32-bit lanes; the bits above are noise.
  HWY_INLINE hn::Vec<DU32> operator()(V magnitude) const {
    const D d;
    const V y = hn::Mul(magnitude, inverse_);
#if HWY_TARGET <= HWY_AVX3
    // Sixteen lanes hold a pair of binades each, in which at most two lines meet.
    const DU32 du32;
    const V within = hn::Max(y, hn::Set(d, LineTable::kLowest));
    const auto pair = hn::And(hn::ShiftRight<24>(hn::BitCast(du32, within)), hn::Set(du32, 15u));
    const auto at = hn::IndicesFromVec(d, pair);
    const V low = hn::Add(hn::Mul(y, hn::TableLookupLanes(low_slope_, at)),
                          hn::TableLookupLanes(low_offset_, at));
    const V high = hn::Add(hn::Mul(y, hn::TableLookupLanes(high_slope_, at)),
                           hn::TableLookupLanes(high_offset_, at));
    const V least = hn::Min(low, high);
#else
    V least = hn::Add(hn::Mul(y, hn::Set(d, map_.slope[0])), hn::Set(d, map_.offset[0]));
    for (int j = 1; j < kPieces; ++j) {
      least = hn::Min(least,
                      hn::Add(hn::Mul(y, hn::Set(d, map_.slope[j])), hn::Set(d, map_.offset[j])));
    }
#endif
    return hn::BitCast(DU32(), hn::Add(least, hn::Set(d, kRoundToInteger)));
  }

 private:
  const QuantiseMap<kPieces>& map_;
  V inverse_;
#if HWY_TARGET <= HWY_AVX3
  V low_slope_, low_offset_, high_slope_, high_offset_;
#endif
};

// A map's magnitudes times one block's scale, at hand for a loop.
template <class D>
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
    const auto j = hn::And(hn::ShiftRight<23>(hn::BitCast(du32, u)), hn::Set(du32, kEntries - 1));
#if HWY_TARGET <= HWY_AVX3
    const auto at = hn::IndicesFromVec(d, j);
    return hn::Add(hn::Mul(hn::TableLookupLanes(step_, at), u), hn::TableLookupLanes(base_, at));
#else
    const auto at = hn::BitCast(di32, j);
    return hn::Add(hn::Mul(hn::GatherIndex(d, step_, at), u), hn::GatherIndex(d, base_, at));
#endif
  }

 private:
#if HWY_TARGET <= HWY_AVX3
  V step_, base_;
#else
  alignas(64) float step_[kEntries];
  alignas(64) float base_[kEntries];
#endif
};

template <class DU32>
HWY_INLINE hn::Vec<DU32> LoadCodes(DU32 du32, const uint8_t* codes) {
  const hn::Rebind<uint8_t, DU32> du8;
  return hn::PromoteTo(du32, hn::LoadU(du8, codes));
}
// The lowest eight bits of every lane.
template <class DU32>
HWY_INLINE void StoreCodes(DU32 du32, hn::Vec<DU32> codes, uint8_t* to) {
  const hn::Rebind<uint8_t, DU32> du8;
  hn::StoreU(hn::U8FromU32(hn::And(codes, hn::Set(du32, 0xFFu))), du8, to);
}

template <class D, class Magnitudes>
HWY_INLINE hn::Vec<D> LoadSigned(D d, const Magnitudes& decoder, const uint8_t* codes) {
  const hn::RebindToUnsigned<D> du32;
  const auto code = LoadCodes(du32, codes);
  const auto magnitude = decoder(hn::And(code, hn::Set(du32, 0x7Fu)));
  const auto sign = hn::And(hn::ShiftLeft<24>(code), hn::Set(du32, 0x80000000u));
  return hn::BitCast(d, hn::Xor(hn::BitCast(du32, magnitude), sign));
}
template <class D, class Magnitudes>
HWY_INLINE void StoreSigned(D /* tag */, const Magnitudes& encoder, hn::Vec<D> value,
                            uint8_t* codes) {
  const hn::RebindToUnsigned<D> du32;
  const auto magnitude = hn::And(encoder(hn::Abs(value)), hn::Set(du32, 0x7Fu));
  const auto sign = hn::And(hn::ShiftRight<24>(hn::BitCast(du32, value)), hn::Set(du32, 0x80u));
  StoreCodes(du32, hn::Or(magnitude, sign), codes);
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
