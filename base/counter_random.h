// Random numbers without state: the n-th number of stream s is a function of s and n.
#ifndef GEMINID_BASE_COUNTER_RANDOM_H_
#define GEMINID_BASE_COUNTER_RANDOM_H_

#include <cmath>
#include <cstdint>
#include <numbers>

namespace geminid::base {

// The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): a bijection that passes
// BigCrush when its input is a counter times the golden ratio.
constexpr uint64_t Mix(uint64_t value) {
  value += 0x9E3779B97F4A7C15u;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

// 64 random bits.
constexpr uint64_t RandomBits(uint64_t stream, uint64_t counter) {
  return Mix(Mix(stream) + counter * 0x9E3779B97F4A7C15u);
}

// Uniform in (0, 1): never 0, so that its logarithm is finite.
constexpr double UnitInterval(uint64_t bits) {
  return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53;
}

// Two independent numbers of the standard normal distribution (Box and Muller, 1958): the `pair`-th
// pair of the stream.
struct NormalPair {
  double values[2];
};
inline NormalPair RandomNormals(uint64_t stream, uint64_t pair) {
  const double radius = std::sqrt(-2.0 * std::log(UnitInterval(RandomBits(stream, 2 * pair))));
  const double angle = 2.0 * std::numbers::pi * UnitInterval(RandomBits(stream, 2 * pair + 1));
  return {{radius * std::cos(angle), radius * std::sin(angle)}};
}

}  // namespace geminid::base

#endif  // GEMINID_BASE_COUNTER_RANDOM_H_
