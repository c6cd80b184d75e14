// Plans a fixed set of traces and prints the hash of each plan. argv[1] seeds two things that must
// not change the hash: the heap's contents and the order of the chunks in the trace.
#include <cinttypes>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/planner/make_plan.h"
#include "tests/daemon/planner/traces.h"
#include "tests/daemon/planner/transformers.h"

namespace geminid::planner {
namespace {

// A trace whose chunks are in random order, and the original number of each chunk.
struct Shuffled {
  Trace trace;
  std::vector<ChunkIndex> original;
};

Shuffled Shuffle(const Trace& trace, std::mt19937_64& random) {
  Shuffled shuffled{trace, {}};
  for (ChunkIndex c = 0; c < trace.chunks.size(); ++c) shuffled.original.push_back(c);
  for (std::size_t c = shuffled.original.size(); c-- > 1;) {
    std::swap(shuffled.original[c], shuffled.original[Draw(random, 0, c)]);
  }
  std::unordered_map<ChunkIndex, ChunkIndex> now;
  for (ChunkIndex c = 0; c < trace.chunks.size(); ++c) {
    now[shuffled.original[c]] = c;
    shuffled.trace.chunks[c] = trace.chunks[shuffled.original[c]];
  }
  for (MomentTrace& moment : shuffled.trace.moments) {
    for (Use& use : moment.uses) use.chunk = now[use.chunk];
  }
  return shuffled;
}

// Restores the original numbers, so that plans of differently ordered chunks compare.
void Rename(const Shuffled& shuffled, std::uint64_t trace_hash, Plan& plan) {
  const auto rename = [&](ChunkIndex& chunk) { chunk = shuffled.original[chunk]; };
  plan.trace_hash = trace_hash;
  for (Step& step : plan.steps) {
    for (Load& load : step.loads) rename(load.chunk);
    for (Drop& drop : step.drops) rename(drop.chunk);
  }
  for (Placement& placement : plan.resident_at_start) rename(placement.chunk);
  for (Residency& residency : plan.residencies) rename(residency.chunk);
  for (Stall& stall : plan.stalls) rename(stall.chunk);
}

std::vector<Trace> Traces() {
  std::mt19937_64 random(61);
  std::vector<Trace> traces = {ChainTrace(40, 1000, 12, 6, true),
                               ChainTrace(40, 1000, 9, 9, false)};
  for (const Transformer& model : PublishedTransformers()) {
    traces.push_back(TransformerTrace(model, {.device_bytes = 6000000000}));
  }
  for (int i = 0; i < 20; ++i) {
    traces.push_back(RandomTrace({.num_chunks = 40,
                                  .num_moments = 90,
                                  .max_size_bytes = 9,
                                  .max_uses_per_moment = 3,
                                  .invalidate = i % 2 == 0},
                                 random));
  }
  return traces;
}

}  // namespace
}  // namespace geminid::planner

int main(int argc, char** argv) {
  using namespace geminid::planner;  // NOLINT: the whole program is about the planner
  if (argc != 2) return 2;
  std::setlocale(LC_ALL, "");
  std::mt19937_64 random(std::strtoull(argv[1], nullptr, 10));
  std::vector<std::unique_ptr<char[]>> clutter;
  for (int i = 0; i < 200; ++i) clutter.push_back(std::make_unique<char[]>(Draw(random, 1, 5000)));
  for (int i = 0; i < 100; ++i)
    clutter.erase(clutter.begin() + Draw(random, 0, clutter.size() - 1));
  for (const Trace& trace : Traces()) {
    const Shuffled shuffled = Shuffle(trace, random);
    for (const bool change : {true, false}) {
      PlannerOptions options = TestOptions();
      options.weights_change_between_iterations = change;
      absl::StatusOr<Plan> plan = MakePlan(shuffled.trace, options);
      if (!plan.ok()) return 1;
      Rename(shuffled, TraceHash(trace), *plan);
      std::printf("%016" PRIx64 "\n", PlanHash(*plan));
    }
  }
  return 0;
}
