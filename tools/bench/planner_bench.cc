// Time to plan one iteration, by number of chunks. Each chunk is used twice, so 10 000 chunks are
// 20 000 uses. The last lines fit n log n to the times of 1,000 to 20,000 chunks.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "benchmark/benchmark.h"
#include "daemon/planner/make_plan.h"
#include "tools/bench/size.h"

namespace geminid::planner {
namespace {

constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20;

// Forward and backward over `length` chunks of 64 MiB, or of 32 to 64 MiB if `unequal`. The arena
// holds a tenth of them; the activations take up to half of it.
Trace Chain(int length, bool unequal, bool trained) {
  Trace trace;
  const auto slots = static_cast<std::uint64_t>(length) / 10 + 4;
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

// Each of `length` chunks twice, in random order, one a moment: no structure to exploit. The arena
// holds a tenth of them and the activations half of it in the middle.
Trace Shuffled(int length, bool unequal, bool trained) {
  Trace trace = Chain(length, unequal, trained);
  std::mt19937_64 random(1);
  std::vector<ChunkIndex> order;
  for (const MomentTrace& moment : trace.moments) order.push_back(moment.uses[0].chunk);
  for (std::size_t i = order.size(); i-- > 1;) std::swap(order[i], order[random() % (i + 1)]);
  std::vector<bool> seen(trace.chunks.size(), false);
  for (std::size_t t = 0; t < order.size(); ++t) {
    Use& use = trace.moments[t].uses[0];
    use = {.chunk = order[t], .invalidates = trained && seen[order[t]]};
    seen[order[t]] = true;
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
  state.counters["step_per_bound"] = plan.predicted_step_seconds / plan.step_lower_bound_seconds;
  state.SetComplexityN(static_cast<std::int64_t>(trace.chunks.size()));
}

void Sizes(benchmark::internal::Benchmark* bench) {
  for (const int length : {1000, 2000, 5000, 10000, 20000}) {
    bench->Arg(geminid::bench::Size(length, length / 50));
  }
  bench->Unit(benchmark::kMillisecond)->Complexity(benchmark::oNLogN);
}

PlannerOptions Options(bool weights_change, Objective objective) {
  PlannerOptions options;
  options.weights_change_between_iterations = weights_change;
  options.objective = objective;
  return options;
}

// All gradients have room, and take as long to leave as the iteration lasts.
Trace Roomy(int length, bool unequal, bool trained) {
  Trace trace = Chain(length, unequal, trained);
  trace.arena_bytes = static_cast<std::uint64_t>(length + 2) * 64 * kMebibyte;
  for (MomentTrace& moment : trace.moments) moment.workspace_bytes = 0;
  return trace;
}

void RunLongDrains(benchmark::State& state) {
  const Trace trace = Roomy(static_cast<int>(state.range(0)), /*unequal=*/false, /*trained=*/true);
  PlannerOptions options = Options(/*weights_change=*/true, Objective::kStepTime);
  options.drain_moments = static_cast<std::uint32_t>(trace.moments.size());
  Run(state, trace, options);
}

// A step's trace: forward and backward as in models, or in random order. Without training, copies
// stay valid. One plan per objective.
void RegisterPlans() {
  using Make = Trace (*)(int, bool, bool);
  const auto add = [](const std::string& name, Make make, bool unequal, bool trained,
                      Objective objective) {
    const auto run = [=](benchmark::State& state) {
      Run(state, make(static_cast<int>(state.range(0)), unequal, trained),
          Options(trained, objective));
    };
    Sizes(benchmark::RegisterBenchmark(("BM_Plan/" + name).c_str(), run));
  };
  const auto both = [&](const std::string& name, Make make, bool unequal, bool trained) {
    add(name + ", fastest step", make, unequal, trained, Objective::kStepTime);
    add(name + ", fewest bytes", make, unequal, trained, Objective::kBytes);
  };
  both("forward and backward, equal", Chain, false, true);
  both("forward and backward, unequal", Chain, true, true);
  both("forward and backward, equal, copies stay valid", Chain, false, false);
  both("random order, equal", Shuffled, false, true);
  both("random order, unequal", Shuffled, true, true);
  both("random order, unequal, copies stay valid", Shuffled, true, false);
  Sizes(benchmark::RegisterBenchmark("BM_Plan/gradients that drain for the whole iteration",
                                     RunLongDrains));
}

void BM_CheckPlan(benchmark::State& state) {
  const Trace trace = Chain(static_cast<int>(state.range(0)), /*unequal=*/true, /*trained=*/true);
  const absl::StatusOr<Plan> plan = MakePlan(trace, PlannerOptions());
  for (auto _ : state) {
    if (!plan.ok() || !CheckPlan(trace, *plan).ok()) {
      state.SkipWithError("no valid plan");
      return;
    }
  }
  state.SetComplexityN(state.range(0));
}
BENCHMARK(BM_CheckPlan)->Apply(Sizes);

}  // namespace
}  // namespace geminid::planner

int main(int argc, char** argv) {
  geminid::planner::RegisterPlans();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return EXIT_FAILURE;
  benchmark::RunSpecifiedBenchmarks();
}
