#ifndef GEMINID_KERNELS_NUMERIC_QUANTISE_LINE_TABLE_H_
#define GEMINID_KERNELS_NUMERIC_QUANTISE_LINE_TABLE_H_

#include "kernels/numeric/quantise/block_quantise_rule.h"

namespace geminid::kernels {

// Which lines a magnitude can lie on, by the upper four bits of the lower five of its exponent:
// entry i is for [4^i 2^-31, 4^(i+1) 2^-31), which is less than a decade and so holds at most one
// corner of the map; `low` is the line at its lower end, `high` at its upper end. Smaller
// magnitudes, which all have code 0, use entry 0. The least of the two lines is the least of all.
struct LineTable {
  static constexpr int kEntries = 16;
  static constexpr float kLowest = 0x1p-31F;
  alignas(64) float low_slope[kEntries];
  alignas(64) float low_offset[kEntries];
  alignas(64) float high_slope[kEntries];
  alignas(64) float high_offset[kEntries];
};

// The line whose piece contains y.
template <int kPieces>
constexpr int LineAt(const QuantiseMap<kPieces>& map, float y) {
  int j = 0;
  while (j + 1 < kPieces && y >= map.power[j + 1]) ++j;
  return j;
}

template <int kPieces>
constexpr LineTable MakeLineTable(const QuantiseMap<kPieces>& map) {
  LineTable table = {};
  float begin = LineTable::kLowest;
  for (int i = 0; i < LineTable::kEntries; ++i, begin *= 4.0F) {
    const int low = LineAt(map, begin), high = LineAt(map, begin * 4.0F);
    table.low_slope[i] = map.slope[low];
    table.low_offset[i] = map.offset[low];
    table.high_slope[i] = map.slope[high];
    table.high_offset[i] = map.offset[high];
  }
  return table;
}

// step and base of a map, by the lowest four bits of the exponent field of u, 127 + j.
struct DecodeTable {
  static constexpr uint32_t kEntries = 16;
  alignas(64) float step[kEntries];
  alignas(64) float base[kEntries];
};

template <int kPieces>
constexpr DecodeTable MakeDecodeTable(const QuantiseMap<kPieces>& map) {
  DecodeTable table = {};
  for (uint32_t j = 0; j <= kPieces; ++j) {
    table.step[(127 + j) % DecodeTable::kEntries] = map.step[j];
    table.base[(127 + j) % DecodeTable::kEntries] = map.base[j];
  }
  return table;
}

inline constexpr DecodeTable kSignedDecoding = MakeDecodeTable(kSignedMap);
inline constexpr DecodeTable kUnsignedDecoding = MakeDecodeTable(kUnsignedMap);
inline constexpr LineTable kSignedLines = MakeLineTable(kSignedMap);
inline constexpr LineTable kUnsignedLines = MakeLineTable(kUnsignedMap);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_NUMERIC_QUANTISE_LINE_TABLE_H_
