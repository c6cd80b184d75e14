// Time to plan one iteration, by number of chunks. A trained chain uses each chunk twice, so 10 000
// chunks are 20 000 uses.

#include <cstdint>
#include <utility>

#include "benchmark/benchmark.h"
#include "daemon/core/planner/planner.h"

namespace geminid::planner {
namespace {

constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20;

// Forward and backward over `length` chunks of 64 MiB, or of 32 to 64 MiB if `unequal`. The arena
// holds a tenth of them; the activations take up to half of it.
Trace Chain(int length, bool unequal, bool trained) {
  Trace trace;
  const auto slots = static_cast<std::uint64_t>(length / 10 + 4);
  trace.arena_bytes = slots * 64 * kMebibyte;
  trace.link = {
      .h2d_bytes_per_second = 25e9, .d2h_bytes_per_second = 25e9, .latency_seconds = 10e-6};
  for (int i = 0; i < length; ++i) {
    const std::uint64_t size = unequal ? (32 + static_cast<std::uint64_t>(i) * 7919 % 33) : 64;
    trace.chunks.push_back({.id = static_cast<std::uint64_t>(i),
                            .size_bytes = size * kMebibyte,
                            .transfer_bytes = size * kMebibyte / 4,
                            .gradient_bytes = size * kMebibyte / 4});
  }
  for (int t = 0; t < 2 * length; ++t) {
    const bool forward = t < length;
    const auto chunk = static_cast<ChunkIndex>(forward ? t : 2 * length - 1 - t);
    trace.moments.push_back(
        {.uses = {{.chunk = chunk, .invalidates = trained && !forward}},
         .workspace_bytes = trace.arena_bytes / 2 / static_cast<std::uint64_t>(length) * chunk,
         .compute_seconds = 1e-3});
  }
  return trace;
}

void Run(benchmark::State& state, const Trace& trace, const PlannerOptions& options) {
  Plan plan;
  for (auto _ : state) {
    absl::StatusOr<Plan> made = MakePlan(trace, options);
    if (!made.ok()) {
      state.SkipWithError(made.status().ToString().c_str());
      return;
    }
    plan = *std::move(made);
  }
  state.counters["bytes_per_bound"] =
      static_cast<double>(plan.h2d_bytes) / static_cast<double>(plan.lower_bound_bytes);
  state.counters["step_per_compute"] = plan.predicted_step_seconds / plan.compute_seconds;
}

void BM_TrainedChain(benchmark::State& state) {
  Run(state, Chain(static_cast<int>(state.range(0)), /*unequal=*/false, /*trained=*/true),
      PlannerOptions());
}
BENCHMARK(BM_TrainedChain)->Arg(100)->Arg(1000)->Arg(10000)->Unit(benchmark::kMillisecond);

void BM_UnequalChain(benchmark::State& state) {
  Run(state, Chain(static_cast<int>(state.range(0)), /*unequal=*/true, /*trained=*/true),
      PlannerOptions());
}
BENCHMARK(BM_UnequalChain)->Arg(100)->Arg(1000)->Arg(10000)->Unit(benchmark::kMillisecond);

void BM_UnequalChainFewestBytes(benchmark::State& state) {
  PlannerOptions options;
  options.objective = Objective::kBytes;
  Run(state, Chain(static_cast<int>(state.range(0)), /*unequal=*/true, /*trained=*/true), options);
}
BENCHMARK(BM_UnequalChainFewestBytes)
    ->Arg(100)
    ->Arg(1000)
    ->Arg(10000)
    ->Unit(benchmark::kMillisecond);

void BM_FrozenChain(benchmark::State& state) {
  PlannerOptions options;
  options.weights_change_between_iterations = false;
  Run(state, Chain(static_cast<int>(state.range(0)), /*unequal=*/false, /*trained=*/false),
      options);
}
BENCHMARK(BM_FrozenChain)->Arg(100)->Arg(1000)->Arg(10000)->Unit(benchmark::kMillisecond);

void BM_CheckPlan(benchmark::State& state) {
  const Trace trace = Chain(static_cast<int>(state.range(0)), /*unequal=*/true, /*trained=*/true);
  const absl::StatusOr<Plan> plan = MakePlan(trace, PlannerOptions());
  for (auto _ : state) {
    if (!plan.ok() || !CheckPlan(trace, *plan).ok()) {
      state.SkipWithError("no valid plan");
      return;
    }
  }
}
BENCHMARK(BM_CheckPlan)->Arg(10000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace geminid::planner

BENCHMARK_MAIN();
