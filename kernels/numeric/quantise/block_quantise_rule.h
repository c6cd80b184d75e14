#ifndef GEMINID_KERNELS_NUMERIC_QUANTISE_BLOCK_QUANTISE_RULE_H_
#define GEMINID_KERNELS_NUMERIC_QUANTISE_BLOCK_QUANTISE_RULE_H_

#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/runtime/common/host_device.h"

// Block-wise dynamic quantisation to 8 bits, "8-bit Optimizers via Block-wise Quantization"
// (Dettmers et al., 2022): every block of kQuantiseBlock values keeps the largest of its magnitudes
// in fp32, and each value a code for value / largest in a dynamic tree: the position of the code's
// leading one says the decade, the bits after it divide the decade evenly.
//
// The map, by formula: the magnitude of code 2^j - 1 is the power of ten P(j), and codes between
// two such are spread evenly between their magnitudes.
//   signed, 7 bits of magnitude below the sign:  P(j) = 10^(j-7) for j = 1..7, P(0) = 0
//   unsigned, 8 bits:                            P(j) = 10^(j-8) for j = 0..8
// So decades are 1, 2, 4 ... 64 (128) codes each, finer towards the largest; the largest itself has
// the last code and is exact; the unsigned map has no zero, so what is divided by a decoded value
// (Adam's root of the second moment) never becomes a division by nothing while the block is not
// all zero. Values in the first decade below the largest have a relative error of at most 7.1 %
// (unsigned 3.6 %), at its lower end; it doubles with every further decade.
//
// Blocks of 256, not the paper's 2048: one fp32 per 256 codes adds 1.6 %, and an outlier costs
// precision in an eighth of the values.
namespace geminid::kernels {

inline constexpr size_t kQuantiseBlock = 256;

// What `count` values need beside their `count` codes.
constexpr size_t QuantiseScaleCount(size_t count) {
  return count / kQuantiseBlock + (count % kQuantiseBlock != 0);
}

// Coding: for a magnitude y relative to the largest, line j is slope[j] y + offset[j], and the code
// is the least of the lines, rounded. (The map is convex, its inverse concave, and a concave
// function of straight pieces is the least of them.) Decoding: with u = code + 1 and
// 2^j <= u < 2^(j+1), the magnitude is step[j] u + base[j].
template <int kPieces>
struct QuantiseMap {
  float slope[kPieces];
  float offset[kPieces];
  float power[kPieces + 1];  // P(j)
  float step[kPieces + 1];
  float base[kPieces + 1];
};

template <int kPieces>
constexpr QuantiseMap<kPieces> MakeQuantiseMap(bool zero_is_lowest) {
  QuantiseMap<kPieces> map = {};
  double powers[kPieces + 1] = {};
  double ten_to_the = 1.0;  // exact
  for (int j = kPieces; j >= 0; --j, ten_to_the *= 10.0) powers[j] = 1.0 / ten_to_the;
  if (zero_is_lowest) powers[0] = 0.0;
  for (int j = 0; j <= kPieces; ++j) map.power[j] = static_cast<float>(powers[j]);
  for (int j = 0; j < kPieces; ++j) {
    const double codes = static_cast<double>(1 << j);
    const double slope = codes / (powers[j + 1] - powers[j]);
    map.slope[j] = static_cast<float>(slope);
    map.offset[j] = static_cast<float>(codes - 1.0 - slope * powers[j]);
    map.step[j] = j == 0 ? 0.0F : static_cast<float>(1.0 / slope);  // one code: a constant
    map.base[j] = j == 0 ? map.power[0] : static_cast<float>(powers[j] - codes / slope);
  }
  map.base[kPieces] = 1.0F;  // the last code alone, so that the largest is exact
  return map;
}

inline constexpr int kSignedPieces = 7;
inline constexpr int kUnsignedPieces = 8;
inline constexpr QuantiseMap<kSignedPieces> kSignedMap = MakeQuantiseMap<kSignedPieces>(true);
inline constexpr QuantiseMap<kUnsignedPieces> kUnsignedMap =
    MakeQuantiseMap<kUnsignedPieces>(false);

// A block's scale: the largest magnitude, and what values are multiplied with before they are
// coded. From the largest bits of |value|, compared as integers: so a NaN is larger than anything.
// A largest below 2^-126 counts as 0: its inverse would not be finite. A block with a value that is
// not finite has scale NaN and all codes 0: it decodes to NaN.
struct QuantiseScale {
  float scale;
  float inverse;
};
GEMINID_HOST_DEVICE inline QuantiseScale ScaleOfLargest(uint32_t largest_bits) {
  if (largest_bits >= 0x7F800000u) return {std::bit_cast<float>(0x7FC00000u), 0.0F};
  if (largest_bits < 0x00800000u) return {0.0F, 0.0F};
  const float largest = std::bit_cast<float>(largest_bits);
  return {largest, 1.0F / largest};
}

// Adding this to a magnitude below 2^22 rounds it to nearest even into the lowest bits.
inline constexpr float kRoundToInteger = 0x1.8p23F;

template <int kPieces>
GEMINID_HOST_DEVICE inline uint8_t EncodeMagnitude(const QuantiseMap<kPieces>& map, float y) {
  float least = y * map.slope[0] + map.offset[0];
  for (int j = 1; j < kPieces; ++j) {
    const float line = y * map.slope[j] + map.offset[j];
    least = line < least ? line : least;
  }
  return static_cast<uint8_t>(std::bit_cast<uint32_t>(least + kRoundToInteger));
}

// The magnitude of a code times scale; four roundings.
template <int kPieces>
GEMINID_HOST_DEVICE inline float DecodeMagnitude(const QuantiseMap<kPieces>& map, uint32_t code,
                                                 float scale) {
  const float u = static_cast<float>(code + 1);
  const uint32_t j = (std::bit_cast<uint32_t>(u) >> 23) - 127;
  return (map.step[j] * scale) * u + map.base[j] * scale;
}

GEMINID_HOST_DEVICE inline uint8_t EncodeSigned(float value, float inverse) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const float y = std::bit_cast<float>(bits & 0x7FFFFFFFu) * inverse;
  constexpr QuantiseMap<kSignedPieces> kMap = kSignedMap;  // local: device code has no globals
  return static_cast<uint8_t>(EncodeMagnitude(kMap, y) | ((bits >> 24) & 0x80u));
}
GEMINID_HOST_DEVICE inline float DecodeSigned(uint8_t code, float scale) {
  constexpr QuantiseMap<kSignedPieces> kMap = kSignedMap;
  const float magnitude = DecodeMagnitude(kMap, code & 0x7Fu, scale);
  const uint32_t sign = (static_cast<uint32_t>(code) & 0x80u) << 24;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) ^ sign);
}

GEMINID_HOST_DEVICE inline uint8_t EncodeUnsigned(float value, float inverse) {
  constexpr QuantiseMap<kUnsignedPieces> kMap = kUnsignedMap;
  return EncodeMagnitude(kMap, value * inverse);
}
GEMINID_HOST_DEVICE inline float DecodeUnsigned(uint8_t code, float scale) {
  constexpr QuantiseMap<kUnsignedPieces> kMap = kUnsignedMap;
  return DecodeMagnitude(kMap, code, scale);
}

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_NUMERIC_QUANTISE_BLOCK_QUANTISE_RULE_H_
