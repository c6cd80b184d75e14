#include "client/zero/core/homes.h"

#include <algorithm>

namespace geminid::zero {

std::optional<std::vector<uint64_t>> HomesOf(const Trace& trace) {
  std::vector<uint64_t> homes;
  uint64_t end = 0;
  for (const TraceChunk& chunk : trace.chunks) {
    homes.push_back(end);
    end += chunk.device_bytes;
  }
  uint64_t workspace_bytes = 0;
  for (const TraceMoment& moment : trace.moments) {
    workspace_bytes = std::max(workspace_bytes, moment.workspace_bytes);
  }
  if (end + workspace_bytes > trace.arena_bytes) return std::nullopt;
  return homes;
}

}  // namespace geminid::zero
