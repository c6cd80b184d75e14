#include "tools/sim/random_trace.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "base/counter_random.h"
#include "proto/shm/lease.h"

namespace geminid::sim {
namespace {

using planner::ChunkIndex;
using planner::Trace;

// Chunks are whole units, so that they are whole slots of an arena too.
constexpr uint64_t kUnitBytes = 16 * shm::kSlotBytes;

class RandomDraws {
 public:
  RandomDraws(TraceKind kind, uint64_t seed)
      : stream_(base::Mix(seed) + static_cast<uint64_t>(kind)) {}
  // Uniform in [low, high].
  uint64_t Whole(uint64_t low, uint64_t high) {
    return low + base::RandomBits(stream_, n_++) % (high - low + 1);
  }
  // Log-uniform in [low, high].
  double Scale(double low, double high) {
    return low * std::pow(high / low, base::UnitInterval(base::RandomBits(stream_, n_++)));
  }
  bool Chance(uint64_t percent) { return Whole(1, 100) <= percent; }

 private:
  const uint64_t stream_;
  uint64_t n_ = 0;
};

void AddChunk(uint64_t units, bool frozen, Trace* trace) {
  const uint64_t bytes = units * kUnitBytes;
  trace->chunks.push_back({.id = trace->chunks.size(),
                           .size_bytes = bytes,
                           .transfer_bytes = bytes,
                           .gradient_bytes = frozen ? 0 : bytes,
                           .frozen = frozen});
}

uint64_t UsedBytes(const Trace& trace, const planner::MomentTrace& moment) {
  uint64_t bytes = 0;
  for (const planner::Use& use : moment.uses) bytes += trace.chunks[use.chunk].size_bytes;
  return bytes;
}

// Forward over `layers` (lists of chunks), then backward; each chunk's last use gives its gradient.
void AddPasses(const std::vector<std::vector<ChunkIndex>>& layers, double layer_seconds,
               Trace* trace) {
  // A backward pass computes two products where the forward pass computes one.
  constexpr double kBackwardOverForward = 2;
  for (const std::vector<ChunkIndex>& layer : layers) {
    planner::MomentTrace moment{.compute_seconds = layer_seconds};
    for (const ChunkIndex chunk : layer) moment.uses.push_back({.chunk = chunk});
    trace->moments.push_back(moment);
  }
  for (size_t l = layers.size(); l-- > 0;) {
    planner::MomentTrace moment = trace->moments[l];
    moment.compute_seconds *= kBackwardOverForward;
    trace->moments.push_back(moment);
  }
  std::vector<bool> seen(trace->chunks.size(), false);
  for (size_t t = trace->moments.size(); t-- > 0;) {
    for (planner::Use& use : trace->moments[t].uses) {
      use.invalidates = !seen[use.chunk] && !trace->chunks[use.chunk].frozen;
      seen[use.chunk] = true;
    }
  }
}

// Room for the largest moment and a part of the rest; activations grow over the forward pass.
void SetCapacity(double part, double activations, Trace* trace) {
  uint64_t model = 0, largest = 0;
  for (const planner::Chunk& chunk : trace->chunks) model += chunk.size_bytes;
  for (const planner::MomentTrace& moment : trace->moments) {
    largest = std::max(largest, UsedBytes(*trace, moment));
  }
  const auto spare = static_cast<uint64_t>(part * static_cast<double>(model)) / kUnitBytes;
  const auto most = static_cast<uint64_t>(activations * static_cast<double>(spare * kUnitBytes));
  trace->arena_bytes = largest + spare * kUnitBytes;
  const size_t half = trace->moments.size() / 2;
  for (size_t t = 0; t < trace->moments.size(); ++t) {
    const size_t depth = t < half ? t + 1 : trace->moments.size() - t;
    trace->moments[t].workspace_bytes =
        most / kUnitBytes * depth / std::max<size_t>(half, 1) * kUnitBytes;
  }
}

// Draws links from fast ones, which computation hides, to slow ones, which hide computation.
void SetLink(RandomDraws* draws, Trace* trace) {
  double compute = 0, bytes = 0;
  for (const planner::MomentTrace& moment : trace->moments) compute += moment.compute_seconds;
  for (const planner::Chunk& chunk : trace->chunks) {
    bytes += static_cast<double>(chunk.transfer_bytes);
  }
  const double speed = bytes / compute * draws->Scale(0.3, 10);
  trace->link.h2d_bytes_per_second = speed;
  trace->link.d2h_bytes_per_second = speed;
  trace->link.latency_seconds = 1e-5;
}

void MakeChain(RandomDraws* draws, bool unequal, Trace* trace) {
  const uint64_t layers = draws->Whole(4, 40);
  std::vector<std::vector<ChunkIndex>> uses(layers);
  const uint64_t size = draws->Whole(1, 8);
  for (std::vector<ChunkIndex>& layer : uses) {
    const uint64_t chunks = unequal ? draws->Whole(1, 3) : 1;
    for (uint64_t c = 0; c < chunks; ++c) {
      layer.push_back(static_cast<ChunkIndex>(trace->chunks.size()));
      AddChunk(unequal ? draws->Whole(1, 4 * size) : size, false, trace);
    }
  }
  if (unequal && draws->Chance(50)) uses.back().push_back(uses.front().front());  // tied
  AddPasses(uses, draws->Scale(1e-4, 1e-2), trace);
}

void MakeAdapters(RandomDraws* draws, Trace* trace) {
  const uint64_t layers = draws->Whole(4, 40);
  std::vector<std::vector<ChunkIndex>> uses(layers);
  const uint64_t size = draws->Whole(2, 8);
  for (std::vector<ChunkIndex>& layer : uses) {
    layer.push_back(static_cast<ChunkIndex>(trace->chunks.size()));
    AddChunk(size, true, trace);
    if (!draws->Chance(60)) continue;
    layer.push_back(static_cast<ChunkIndex>(trace->chunks.size()));
    AddChunk(1, false, trace);
  }
  AddPasses(uses, draws->Scale(1e-4, 1e-2), trace);
}

void MakeRandom(RandomDraws* draws, Trace* trace) {
  const uint64_t chunks = draws->Whole(4, 24);
  const uint64_t largest = draws->Chance(50) ? 1 : draws->Whole(2, 8);
  for (uint64_t c = 0; c < chunks; ++c) {
    AddChunk(draws->Whole(1, largest), draws->Chance(30), trace);
  }
  const uint64_t moments = draws->Whole(chunks, 3 * chunks);
  for (uint64_t t = 0; t < moments; ++t) {
    planner::MomentTrace moment{.compute_seconds = draws->Scale(1e-4, 1e-2)};
    for (uint64_t u = draws->Whole(1, 3); u > 0; --u) {
      const auto chunk = static_cast<ChunkIndex>(draws->Whole(0, chunks - 1));
      const bool there =
          std::any_of(moment.uses.begin(), moment.uses.end(),
                      [chunk](const planner::Use& use) { return use.chunk == chunk; });
      if (!there) moment.uses.push_back({.chunk = chunk});
    }
    trace->moments.push_back(moment);
  }
  std::vector<bool> seen(chunks, false);
  for (size_t t = trace->moments.size(); t-- > 0;) {
    for (planner::Use& use : trace->moments[t].uses) {
      use.invalidates = !seen[use.chunk] && !trace->chunks[use.chunk].frozen;
      seen[use.chunk] = true;
    }
  }
}

}  // namespace

const char* Name(TraceKind kind) {
  switch (kind) {
    case TraceKind::kChain:
      return "chain";
    case TraceKind::kModel:
      return "model";
    case TraceKind::kAdapters:
      return "adapters";
    case TraceKind::kRandom:
      return "random";
  }
  return "unknown";
}

Trace RandomTrace(TraceKind kind, uint64_t seed) {
  RandomDraws draws(kind, seed);
  Trace trace;
  if (kind == TraceKind::kRandom) {
    MakeRandom(&draws, &trace);
  } else if (kind == TraceKind::kAdapters) {
    MakeAdapters(&draws, &trace);
  } else {
    MakeChain(&draws, kind == TraceKind::kModel, &trace);
  }
  SetCapacity(draws.Scale(0.05, 0.9), draws.Scale(0.05, 1), &trace);
  if (kind == TraceKind::kRandom) {  // capacities that jump
    for (planner::MomentTrace& moment : trace.moments) {
      const uint64_t spare = trace.arena_bytes - UsedBytes(trace, moment);
      moment.workspace_bytes = draws.Whole(0, spare / kUnitBytes) * kUnitBytes;
    }
  }
  SetLink(&draws, &trace);
  return trace;
}

}  // namespace geminid::sim
