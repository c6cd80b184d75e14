#include "client/zero/state/state_placement.h"

#include <algorithm>

namespace geminid::zero {
namespace {

constexpr size_t kCandidates = 4;
constexpr uint64_t kStreamedShare = 16;  // one sixteenth of the arena
constexpr uint64_t kLeastStreamedElements = 1024;
constexpr uint64_t kMostStreamedElements = uint64_t{2} << 20;
// Times of operators in one sample differ by about this much between runs.
constexpr double kTimeNoise = 0.01;

uint64_t GatheredBytes(const Trace& trace) {
  uint64_t bytes = 0;
  for (const TraceChunk& chunk : trace.chunks) bytes += chunk.device_bytes;
  return bytes;
}

}  // namespace

uint64_t StateBytes(const StatePlacementProblem& problem, size_t count) {
  uint64_t bytes = 0;
  bool trained = false;
  for (size_t i = 0; i < count; ++i) {
    bytes += problem.state_bytes[problem.order[i]];
    trained |= !problem.trace.chunks[problem.order[i]].frozen;
  }
  return trained ? bytes + problem.spare_bytes : bytes;
}

uint64_t MarginBytes(const Trace& trace, uint32_t drain_moments) {
  const size_t moments = trace.moments.size();
  std::vector<uint64_t> used(moments);
  for (size_t m = 0; m < moments; ++m) {
    used[m] += trace.moments[m].workspace_bytes;
    for (const TraceUse& use : trace.moments[m].uses) {
      const uint64_t bytes = trace.chunks[use.index].device_bytes;
      const size_t last = use.invalidates ? std::min(m + drain_moments, moments - 1) : m;
      for (size_t at = m; at <= last; ++at) used[at] += bytes;
    }
  }
  const uint64_t most = moments == 0 ? 0 : *std::max_element(used.begin(), used.end());
  return trace.arena_bytes - std::min(trace.arena_bytes, most);
}

size_t CountThatFits(const StatePlacementProblem& problem, uint64_t budget_bytes) {
  size_t count = 0;
  while (count < problem.order.size() && StateBytes(problem, count + 1) <= budget_bytes) ++count;
  return count;
}

bool EverythingFits(const StatePlacementProblem& problem) {
  uint64_t workspace = 0;
  for (const TraceMoment& moment : problem.trace.moments) {
    workspace = std::max(workspace, moment.workspace_bytes);
  }
  return StateBytes(problem, problem.order.size()) + GatheredBytes(problem.trace) + workspace <=
         problem.trace.arena_bytes;
}

Trace WithStateOnDevice(const StatePlacementProblem& problem, size_t count) {
  Trace trace = problem.trace;
  trace.arena_bytes -= StateBytes(problem, count);
  for (size_t i = 0; i < count; ++i) {
    const uint32_t chunk = problem.order[i];
    trace.chunks[chunk].transfer_bytes = 0;
    trace.chunks[chunk].gradient_bytes = 0;
    if (!problem.gradients.empty()) trace.chunks[problem.gradients[chunk]].gradient_bytes = 0;
  }
  return trace;
}

std::vector<size_t> CandidateCounts(size_t most) {
  std::vector<size_t> counts = {0};
  for (size_t part = 1; part <= kCandidates; ++part) {
    const size_t count = most * part / kCandidates;
    if (count > counts.back()) counts.push_back(count);
  }
  return counts;
}

bool IsBetter(const StepCost& plan, const StepCost& best) {
  if (plan.seconds < best.seconds * (1 - kTimeNoise)) return true;
  return plan.seconds <= best.seconds * (1 + kTimeNoise) && plan.moved_bytes < best.moved_bytes;
}

bool IsBetter(const Plan& plan, const Plan& best) {
  const auto cost = [](const Plan& of) {
    return StepCost{of.predicted_step_seconds, of.transfer_bytes + of.gradient_bytes};
  };
  return IsBetter(cost(plan), cost(best));
}

std::vector<bool> StreamedGranules(const Layout& layout) {
  std::vector<bool> streamed(layout.granules, false);
  for (const ChunkShape& chunk : layout.chunks) {
    for (uint32_t g = 0; g < chunk.granules; ++g) {
      streamed[chunk.first_granule + g] = chunk.trainable && !chunk.whole;
    }
  }
  return streamed;
}

uint64_t StreamedElements(uint64_t granule_elements, uint64_t element_bytes, uint64_t arena_bytes) {
  const uint64_t affordable = arena_bytes / kStreamedShare / kStreamedPlaces / element_bytes;
  const uint64_t elements = std::clamp(affordable / kLeastStreamedElements * kLeastStreamedElements,
                                       kLeastStreamedElements, kMostStreamedElements);
  return std::min(elements, granule_elements);
}

}  // namespace geminid::zero
