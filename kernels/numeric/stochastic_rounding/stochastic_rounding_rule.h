#ifndef GEMINID_KERNELS_NUMERIC_STOCHASTIC_ROUNDING_STOCHASTIC_ROUNDING_RULE_H_
#define GEMINID_KERNELS_NUMERIC_STOCHASTIC_ROUNDING_STOCHASTIC_ROUNDING_RULE_H_

#include <bit>
#include <cstdint>

#include "kernels/runtime/common/bfloat16.h"
#include "kernels/runtime/common/host_device.h"

// Stochastic rounding of fp32 to bf16: up with the probability that makes the mean exact. 16 random
// bits are added below the bits that stay; then the lower 16 bits are cut off. The random bits are
// a hash of a key and an index, so they need no state and no order.
namespace geminid::kernels {

// The finalisers of splitmix64 (Steele, Lea and Flood, 2014) and MurmurHash3 (Appleby, public
// domain). Every bit of the input changes every bit of the output with a probability of about half.
inline constexpr uint64_t kMix64Multiplier1 = 0xBF58476D1CE4E5B9u;
inline constexpr uint64_t kMix64Multiplier2 = 0x94D049BB133111EBu;
inline constexpr uint64_t kMix64Increment = 0x9E3779B97F4A7C15u;
inline constexpr uint32_t kMix32Multiplier1 = 0x85EBCA6Bu;
inline constexpr uint32_t kMix32Multiplier2 = 0xC2B2AE35u;

GEMINID_HOST_DEVICE inline uint64_t Mix64(uint64_t x) {
  x += kMix64Increment;
  x = (x ^ (x >> 30)) * kMix64Multiplier1;
  x = (x ^ (x >> 27)) * kMix64Multiplier2;
  return x ^ (x >> 31);
}

// The seed of one tensor in one step; the indices of its elements are hashed with it.
inline uint64_t RoundingSeed(uint64_t tensor, uint64_t step) { return Mix64(tensor) ^ step; }

// The key of the elements whose index has the upper 32 bits `index_high`.
GEMINID_HOST_DEVICE inline uint32_t RoundingKey(uint64_t seed, uint64_t index_high) {
  return static_cast<uint32_t>(Mix64(Mix64(seed) ^ index_high));
}

// 32 random bits of one element, by the lower 32 bits of its index: 16 for each of two roundings.
GEMINID_HOST_DEVICE inline uint32_t RoundingBits(uint32_t key, uint32_t index_low) {
  uint32_t x = (index_low ^ key) * kMix32Multiplier1;
  x = (x ^ (x >> 15)) + key;
  x = x * kMix32Multiplier2;
  return x ^ (x >> 16);
}

// `random` < 2^16. Infinities stay; NaN must be 0x7FC00000. The largest finite values may round up
// to infinity, as nearest rounding does.
GEMINID_HOST_DEVICE inline BFloat16 RoundStochastically(float value, uint32_t random) {
  return {static_cast<uint16_t>((std::bit_cast<uint32_t>(value) + random) >> 16)};
}

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_NUMERIC_STOCHASTIC_ROUNDING_STOCHASTIC_ROUNDING_RULE_H_
