// Simulates ranks that run a program with the engine's pure parts. Every copy, collective and
// answer of the daemon is an event at a random time.
#ifndef GEMINID_TESTS_CLIENT_ZERO_CORE_SIMULATED_RANKS_H_
#define GEMINID_TESTS_CLIENT_ZERO_CORE_SIMULATED_RANKS_H_

#include <cstdint>
#include <string>

#include "tests/client/zero/core/random_program.h"

namespace geminid::zero {

struct SimulationResult {
  std::string defect;     // a violated rule; empty: none
  std::string exhausted;  // why the arena was too small; empty: it was not
  uint64_t plans = 0;
  uint64_t plans_with_homes = 0;
  uint64_t followed = 0;  // micro-batches that followed a plan to the end
  uint64_t evaluated_by_plan = 0;
  uint64_t to_host = 0;         // chunks that were evicted to host memory
  uint64_t gathered_again = 0;  // chunks that found no room, and can be gathered again
  uint64_t within_hosts = 0;    // gathers from the copies of each host's ranks
};

SimulationResult Simulate(const SimulatedProgram& program, uint32_t seed);

}  // namespace geminid::zero

#endif  // GEMINID_TESTS_CLIENT_ZERO_CORE_SIMULATED_RANKS_H_
