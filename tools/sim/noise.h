// Random variation of the time that work takes.
#ifndef GEMINID_TOOLS_SIM_NOISE_H_
#define GEMINID_TOOLS_SIM_NOISE_H_

#include <cstdint>

namespace geminid::sim {

// The kinds of work that vary. The values select streams of random numbers: they must not change.
enum class NoiseSource : uint8_t { kCompute = 1, kUpdate = 2 };

// A factor for the n-th work of one kind on one rank: log-normal with mean 1 and the given standard
// deviation of its logarithm. A function of its arguments alone, so one rank's draws do not depend
// on what other ranks did, or when.
double NoiseFactor(uint64_t seed, NoiseSource source, uint64_t rank, uint64_t n, double sigma);

}  // namespace geminid::sim

#endif  // GEMINID_TOOLS_SIM_NOISE_H_
