// Ranks that run a program by the engine's pure parts, with every copy, collective and answer of
// the daemon as an event that happens at a random time.
#ifndef GEMINID_TESTS_CLIENT_ZERO_CORE_SIMULATED_RANKS_H_
#define GEMINID_TESTS_CLIENT_ZERO_CORE_SIMULATED_RANKS_H_

#include <cstdint>
#include <string>

#include "tests/client/zero/core/random_program.h"

namespace geminid::zero {

struct SimulationResult {
  std::string defect;     // what must never happen; empty: it did not
  std::string exhausted;  // the arena was too small: what for
  uint64_t plans = 0;
  uint64_t plans_with_homes = 0;
  uint64_t followed = 0;  // micro-batches by plan to their end
  uint64_t evaluated_by_plan = 0;
  uint64_t to_host = 0;       // chunks that made way
  uint64_t within_hosts = 0;  // gathers of what the ranks of each host have
};

SimulationResult Simulate(const SimulatedProgram& program, uint32_t seed);

}  // namespace geminid::zero

#endif  // GEMINID_TESTS_CLIENT_ZERO_CORE_SIMULATED_RANKS_H_
