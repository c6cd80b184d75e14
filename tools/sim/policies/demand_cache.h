// A cache of chunks that is filled on demand: what static, LRU and Gemini have in common.
#ifndef GEMINID_TOOLS_SIM_POLICIES_DEMAND_CACHE_H_
#define GEMINID_TOOLS_SIM_POLICIES_DEMAND_CACHE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/planner/contract/trace.h"
#include "tools/sim/policies/schedule.h"

namespace geminid::sim {

// A chunk as whoever chooses victims sees it.
struct CachedChunk {
  planner::ChunkIndex chunk = 0;
  uint64_t last_used = 0;  // counts the moments of all iterations
  size_t next_use = 0;     // moment of this iteration; the number of moments: not used again in it
};

// Where chunks may lie.
enum class Memory {
  // In the arena: each at one offset for its stay, first fit, below the activations. Where no hole
  // is large enough, more leave until one is; whatever the growing activations reach leaves.
  kArena,
  // In memory that never fragments (Schedule::counts_bytes_only): better than any real allocator.
  kIdeal,
};

struct DemandRules {
  // True if `a` should leave before `b`. A strict order; equals leave in order of first use.
  std::function<bool(const CachedChunk& a, const CachedChunk& b)> leaves_before;
  bool copies_back = false;  // whatever leaves to make room
  // By chunk: never leaves while its copy is valid. Empty: none.
  std::vector<bool> pinned;
  // What is not pinned leaves after each use, unless the next moment uses it too.
  bool drops_after_use = false;
  Memory memory = Memory::kArena;
};

// Runs the cache until its state repeats, and returns what repeats; if that takes too long, the
// cache is emptied at the end of each iteration. O(iterations * uses * chunks).
absl::StatusOr<Schedule> RunDemandCache(const planner::Trace& trace, const DemandRules& rules);

}  // namespace geminid::sim

#endif  // GEMINID_TOOLS_SIM_POLICIES_DEMAND_CACHE_H_
