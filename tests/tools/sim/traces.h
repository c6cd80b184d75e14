// Small jobs whose results can be computed by hand.
#ifndef GEMINID_TESTS_TOOLS_SIM_TRACES_H_
#define GEMINID_TESTS_TOOLS_SIM_TRACES_H_

#include <cstdint>

#include "daemon/planner/contract/trace.h"
#include "tools/sim/machine.h"

namespace geminid::sim {

inline constexpr uint64_t kMiB = uint64_t{1} << 20;

// A forward pass over `length` chunks of 1 MiB and back, one chunk per moment. Each moment takes
// `seconds`, and the link carries 1 MiB per millisecond.
inline planner::Trace ChainTrace(uint32_t length, uint64_t arena_bytes, double seconds) {
  planner::Trace trace;
  trace.arena_bytes = arena_bytes;
  for (uint32_t c = 0; c < length; ++c) {
    trace.chunks.push_back(
        {.id = c, .size_bytes = kMiB, .transfer_bytes = kMiB, .gradient_bytes = kMiB});
    trace.moments.push_back({.uses = {{.chunk = c}}, .compute_seconds = seconds});
  }
  for (uint32_t c = length; c-- > 0;) {
    trace.moments.push_back(
        {.uses = {{.chunk = c, .invalidates = true}}, .compute_seconds = seconds});
  }
  trace.link.h2d_bytes_per_second = 1000 * kMiB;
  trace.link.d2h_bytes_per_second = 1000 * kMiB;
  return trace;
}

inline Workload WithoutUpdates(const planner::Trace& trace) {
  Workload workload;
  workload.trace = trace;
  workload.updates.resize(trace.chunks.size());
  return workload;
}

}  // namespace geminid::sim

#endif  // GEMINID_TESTS_TOOLS_SIM_TRACES_H_
