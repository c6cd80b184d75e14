#ifndef GEMINID_KERNELS_RUNTIME_COMMON_FLOAT16_H_
#define GEMINID_KERNELS_RUNTIME_COMMON_FLOAT16_H_

#include <bit>
#include <cstdint>

namespace geminid::kernels {

// IEEE-754 binary16: 1 sign, 5 exponent, 10 mantissa bits. Storage only: no arithmetic, comparisons
// compare nothing but bits.
struct Float16 {
  uint16_t bits;

  // Rounds to nearest, ties to even, subnormals included; from 65520 on overflows to infinity as
  // IEEE-754 does. A NaN stays a NaN of the same sign and upper payload, made quiet.
  static constexpr Float16 FromFloat(float value) {
    const uint32_t in = std::bit_cast<uint32_t>(value);
    const uint32_t sign = (in >> 16) & 0x8000u;
    const uint32_t magnitude = in & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u) {
      return {static_cast<uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x03FFu))};
    }
    if (magnitude >= 0x47800000u) return {static_cast<uint16_t>(sign | 0x7C00u)};  // >= 65536
    const uint32_t exponent = magnitude >> 23;
    if (exponent >= 113) {  // normal: >= 2^-14. The exponent's bias goes from 127 to 15.
      return {static_cast<uint16_t>(sign | (RoundedShift(magnitude, 13) - (112u << 10)))};
    }
    if (exponent < 102) return {static_cast<uint16_t>(sign)};  // below half of 2^-24
    const uint32_t significand = (magnitude & 0x007FFFFFu) | 0x00800000u;
    return {static_cast<uint16_t>(sign | RoundedShift(significand, 126 - exponent))};
  }

  // Exact; a NaN is made quiet.
  constexpr float ToFloat() const {
    const uint32_t sign = (bits & 0x8000u) << 16;
    const uint32_t exponent = (bits >> 10) & 0x1Fu;
    const uint32_t mantissa = bits & 0x03FFu;
    if (exponent == 0x1F) {
      const uint32_t quiet = mantissa == 0 ? 0 : 0x00400000u;
      return std::bit_cast<float>(sign | 0x7F800000u | quiet | (mantissa << 13));
    }
    if (exponent == 0) {  // mantissa * 2^-24, which is a normal fp32
      const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
      return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
    }
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  }

  friend constexpr bool operator==(Float16 a, Float16 b) = default;

 private:
  // value / 2^shift to nearest, ties to even; 1 <= shift <= 24.
  static constexpr uint32_t RoundedShift(uint32_t value, uint32_t shift) {
    const uint32_t odd = (value >> shift) & 1u;
    return (value + (1u << (shift - 1)) - 1 + odd) >> shift;
  }
};
static_assert(sizeof(Float16) == 2 && alignof(Float16) == 2);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_RUNTIME_COMMON_FLOAT16_H_
