#include "tools/sim/noise.h"

#include <cmath>
#include <numbers>

#include "base/counter_random.h"

namespace geminid::sim {

double NoiseFactor(uint64_t seed, NoiseSource source, uint64_t rank, uint64_t n, double sigma) {
  if (sigma == 0) return 1;
  using base::Mix;
  using base::RandomBits;
  using base::UnitInterval;
  const uint64_t stream = Mix(Mix(seed) ^ static_cast<uint64_t>(source)) + rank;
  // Box and Muller (1958).
  const double radius = std::sqrt(-2 * std::log(UnitInterval(RandomBits(stream, 2 * n))));
  const double normal =
      radius * std::cos(2 * std::numbers::pi * UnitInterval(RandomBits(stream, 2 * n + 1)));
  return std::exp(sigma * normal - sigma * sigma / 2);
}

}  // namespace geminid::sim
