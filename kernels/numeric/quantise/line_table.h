#ifndef GEMINID_KERNELS_NUMERIC_QUANTISE_LINE_TABLE_H_
#define GEMINID_KERNELS_NUMERIC_QUANTISE_LINE_TABLE_H_

#include <bit>
#include <cstdint>

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

// Entry i is the corner P(i + 1) of the map, where lines i and i + 1 meet, and line i. The line of
// a magnitude is that of the nearest corner, or the next line where the magnitude is not below the
// corner: near a corner both lines round to its code.
//
// Nearest is less than about half a decade away, by the upper half of the magnitude's bits, which
// is a fair logarithm: entry (upper - first) * kScale / 2^16, where smaller ones count as `first`.
struct DecadeTable {
  static constexpr uint32_t kEntries = 8;
  static constexpr uint16_t kScale = 154;  // 2^16 / (log2(10) 2^7)
  alignas(32) float corner[kEntries];
  alignas(32) float slope[kEntries];
  alignas(32) float offset[kEntries];
  uint16_t first;
};

template <int kPieces>
constexpr DecadeTable MakeDecadeTable(const QuantiseMap<kPieces>& map) {
  DecadeTable table = {};
  for (int i = 0; i < static_cast<int>(DecadeTable::kEntries); ++i) {
    const int line = i < kPieces ? i : kPieces - 1;
    table.corner[i] = i + 1 < kPieces ? map.power[i + 1] : 2.0F;  // above every magnitude
    table.slope[i] = map.slope[line];
    table.offset[i] = map.offset[line];
  }
  constexpr uint32_t kHalfDecade = (1u << 15) / DecadeTable::kScale;
  table.first = static_cast<uint16_t>((std::bit_cast<uint32_t>(map.power[1]) >> 16) - kHalfDecade);
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
inline constexpr DecadeTable kSignedDecades = MakeDecadeTable(kSignedMap);
inline constexpr DecadeTable kUnsignedDecades = MakeDecadeTable(kUnsignedMap);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_NUMERIC_QUANTISE_LINE_TABLE_H_
