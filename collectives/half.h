// Conversions between the 16-bit formats and fp32, free of branches so that loops of them
// vectorise.
#ifndef GEMINID_COLLECTIVES_HALF_H_
#define GEMINID_COLLECTIVES_HALF_H_

#include <bit>
#include <cstdint>

#include "collectives/types.h"

namespace geminid::collectives {

[[gnu::always_inline]] inline float ToFloat(BFloat16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

// To nearest, ties to even. A NaN stays a (quiet) NaN.
[[gnu::always_inline]] inline BFloat16 ToBFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t quiet_nan = (bits >> 16) | 0x40u;
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return BFloat16{static_cast<uint16_t>(is_nan ? quiet_nan : rounded)};
}

// Exact. Subnormals go through an integer conversion: it gives the same answer when the thread
// flushes subnormals to zero.
[[gnu::always_inline]] inline float ToFloat(Float16 value) {
  const uint32_t half = value.bits;
  const uint32_t sign = (half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7fffu;
  const uint32_t normal = (magnitude << 13) + (112u << 23);  // 112 = 127 - 15, the biases
  const uint32_t infinite = (magnitude << 13) | 0x7f800000u;
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  const uint32_t finite = magnitude < 0x400u ? subnormal : normal;
  const uint32_t quiet = magnitude > 0x7c00u ? 0x400000u : 0u;
  return std::bit_cast<float>((magnitude >= 0x7c00u ? infinite | quiet : finite) | sign);
}

// To nearest, ties to even; beyond 65504 by half a unit becomes infinity. A NaN stays a quiet NaN.
[[gnu::always_inline]] inline Float16 ToFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  // Normal results: rebias the exponent and round at bit 13; a carry runs into the exponent.
  const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // Subnormal results: adding one half makes the adder round at 2^-24, the unit of the result.
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  const uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  uint32_t result = magnitude < (113u << 23) ? subnormal : normal;
  result = magnitude >= 0x477ff000u ? 0x7c00u : result;  // 65520, half-way beyond the largest
  result = magnitude > 0x7f800000u ? nan : result;
  return Float16{static_cast<uint16_t>(result | sign)};
}

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_HALF_H_
