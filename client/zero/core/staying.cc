#include "client/zero/core/staying.h"

#include <algorithm>
#include <vector>

namespace geminid::zero {
namespace {

std::vector<bool> Staying(const Trace& trace, const StayingWeights& weights) {
  std::vector<bool> stays(weights.chunks, weights.unused_too);
  for (const TraceMoment& moment : trace.moments) {
    for (const TraceUse& use : moment.uses) {
      if (use.index < weights.chunks) stays[use.index] = true;
    }
  }
  return stays;
}

}  // namespace

Trace WithWhatStays(const Trace& trace, const StayingWeights& weights) {
  const std::vector<bool> stays = Staying(trace, weights);
  Trace with = trace;
  for (TraceMoment& moment : with.moments) {
    std::vector<bool> missing = stays;
    for (const TraceUse& use : moment.uses) {
      if (use.index < weights.chunks) missing[use.index] = false;
    }
    for (uint32_t chunk = 0; chunk < weights.chunks; ++chunk) {
      if (missing[chunk]) moment.uses.push_back({chunk, /*invalidates=*/false});
    }
  }
  return with;
}

bool KeepsStayingWeights(const Plan& plan, const StayingWeights& weights) {
  return std::ranges::all_of(plan.moments, [&weights](const PlannedMoment& moment) {
    return std::ranges::none_of(
        moment.loads, [&](const PlannedLoad& load) { return load.index < weights.chunks; });
  });
}

uint64_t BytesGatheredOnce(const Trace& trace, const StayingWeights& weights) {
  const std::vector<bool> stays = Staying(trace, weights);
  uint64_t bytes = 0;
  for (size_t chunk = 0; chunk < weights.chunks; ++chunk) {
    if (stays[chunk] && !trace.chunks[chunk].frozen) bytes += trace.chunks[chunk].transfer_bytes;
  }
  return bytes;
}

}  // namespace geminid::zero
