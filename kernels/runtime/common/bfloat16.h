#ifndef GEMINID_KERNELS_RUNTIME_COMMON_BFLOAT16_H_
#define GEMINID_KERNELS_RUNTIME_COMMON_BFLOAT16_H_

#include <bit>
#include <cstdint>

namespace geminid::kernels {

// The upper half of an IEEE-754 binary32: 1 sign, 8 exponent, 7 mantissa bits. Storage only: no
// arithmetic, comparisons compare nothing but bits.
struct BFloat16 {
  uint16_t bits;

  // Rounds to nearest, ties to even; overflows to infinity as IEEE-754 does. A NaN stays a NaN of
  // the same sign and upper payload, made quiet.
  static constexpr BFloat16 FromFloat(float value) {
    const uint32_t in = std::bit_cast<uint32_t>(value);
    if ((in & 0x7FFFFFFFu) > 0x7F800000u) {
      return {static_cast<uint16_t>((in >> 16) | 0x0040u)};
    }
    return {static_cast<uint16_t>((in + 0x7FFFu + ((in >> 16) & 1u)) >> 16)};
  }

  // Exact.
  constexpr float ToFloat() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }

  friend constexpr bool operator==(BFloat16 a, BFloat16 b) = default;
};
static_assert(sizeof(BFloat16) == 2 && alignof(BFloat16) == 2);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_RUNTIME_COMMON_BFLOAT16_H_
