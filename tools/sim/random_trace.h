// Traces to compare policies on, as different from each other as training iterations are.
#ifndef GEMINID_TOOLS_SIM_RANDOM_TRACE_H_
#define GEMINID_TOOLS_SIM_RANDOM_TRACE_H_

#include <cstdint>

#include "daemon/planner/contract/trace.h"

namespace geminid::sim {

enum class TraceKind {
  kChain,     // forward over equal chunks and back, with activations that grow and shrink
  kModel,     // the same with embeddings, tied weights and unequal chunks
  kAdapters,  // most chunks frozen, a few small ones trained
  kRandom,    // uses in no order, capacities that jump
};
inline constexpr int kTraceKinds = 4;
const char* Name(TraceKind kind);

// A valid trace of which every moment fits, with chunks, capacities, operator times and link speeds
// drawn from the seed. The same seed gives the same trace everywhere.
planner::Trace RandomTrace(TraceKind kind, uint64_t seed);

}  // namespace geminid::sim

#endif  // GEMINID_TOOLS_SIM_RANDOM_TRACE_H_
