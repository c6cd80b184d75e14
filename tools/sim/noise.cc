#include "tools/sim/noise.h"

#include <cmath>

#include "base/counter_random.h"

namespace geminid::sim {

double NoiseFactor(uint64_t seed, NoiseSource source, uint64_t rank, uint64_t n, double sigma) {
  if (sigma == 0) return 1;
  const uint64_t stream = base::Mix(base::Mix(seed) ^ static_cast<uint64_t>(source)) + rank;
  const double normal = base::RandomNormals(stream, n).values[0];
  return std::exp(sigma * normal - sigma * sigma / 2);
}

}  // namespace geminid::sim
