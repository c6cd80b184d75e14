#ifndef GEMINID_TESTS_DAEMON_PLANNER_TRACES_H_
#define GEMINID_TESTS_DAEMON_PLANNER_TRACES_H_

#include <cstdint>
#include <random>
#include <vector>

#include "daemon/planner/contract/plan.h"
#include "daemon/planner/contract/trace.h"

namespace geminid::planner {

// Forward over chunks 0 .. length - 1, backward over the same in reverse, one chunk of `size_bytes`
// a moment; capacity in chunks linear from `bottom` at both ends of the iteration to `top` in
// between. The last backward use invalidates if `trained`.
Trace ChainTrace(int length, std::uint64_t size_bytes, int bottom, int top, bool trained);

enum class Capacity { kConstant, kValley, kJagged };

struct RandomShape {
  int num_chunks = 5;
  int num_moments = 10;
  std::uint64_t min_size_bytes = 1;
  std::uint64_t max_size_bytes = 1;
  int max_uses_per_moment = 2;
  Capacity capacity = Capacity::kJagged;
  bool invalidate = false;  // some uses invalidate
  bool freeze = false;      // some chunks are frozen
  bool vary_transfer = false;
};

// Arbitrary uses; every moment's uses fit.
Trace RandomTrace(const RandomShape& shape, std::mt19937_64& random);

// Uniform in [low, high]. Defined here so that the same seed gives the same trace everywhere.
std::uint64_t Draw(std::mt19937_64& random, std::uint64_t low, std::uint64_t high);

// Byte-sized chunks need byte-sized alignment.
PlannerOptions TestOptions();

}  // namespace geminid::planner

#endif  // GEMINID_TESTS_DAEMON_PLANNER_TRACES_H_
