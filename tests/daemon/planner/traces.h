#ifndef GEMINID_TESTS_DAEMON_PLANNER_TRACES_H_
#define GEMINID_TESTS_DAEMON_PLANNER_TRACES_H_

#include <cstdint>
#include <random>
#include <vector>

#include "daemon/planner/contract/plan.h"
#include "daemon/planner/contract/trace.h"

namespace geminid::planner {

// A forward pass over chunks 0 .. length - 1 and a backward pass in reverse, with one chunk of
// `size_bytes` a moment. The capacity in chunks is linear from `bottom` at both ends of the
// iteration to `top` in the middle. With `trained`, the last backward use of a chunk invalidates
// it.
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

// A trace with arbitrary uses. The uses of every moment fit.
Trace RandomTrace(const RandomShape& shape, std::mt19937_64& random);

// Uniform in [low, high]. Defined here so that the same seed gives the same trace everywhere.
std::uint64_t Draw(std::mt19937_64& random, std::uint64_t low, std::uint64_t high);

// Byte-sized chunks need byte-sized alignment.
PlannerOptions TestOptions();

}  // namespace geminid::planner

#endif  // GEMINID_TESTS_DAEMON_PLANNER_TRACES_H_
