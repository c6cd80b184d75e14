#include "daemon/planner/make_plan.h"

#include <algorithm>
#include <cstddef>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/daemon/planner/traces.h"

namespace geminid::planner {
namespace {

using ::testing::HasSubstr;

Plan Planned(const Trace& trace, const PlannerOptions& options) {
  absl::StatusOr<Plan> plan = MakePlan(trace, options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  const absl::Status checked = CheckPlan(trace, *plan);
  EXPECT_TRUE(checked.ok()) << checked;
  return *std::move(plan);
}

std::size_t NumLoads(const Plan& plan) {
  std::size_t loads = 0;
  for (const Step& step : plan.steps) loads += step.loads.size();
  return loads;
}

PlannerOptions Steady() {
  PlannerOptions options = TestOptions();
  options.weights_change_between_iterations = false;
  options.objective = Objective::kBytes;
  return options;
}

// In the steady state a chain of L equal chunks needs 2 L - C_top - C_bottom loads. Each turn saves
// as many loads as it can hold chunks.
TEST(MakePlan, SteadyChain_EqualsTheClosedForm) {
  constexpr int kLength = 64;
  struct Case {
    int bottom, top;
    std::size_t loads;
  };
  for (const auto& [bottom, top, loads] :
       {Case{16, 16, 96}, {32, 24, 72}, {40, 8, 80}, {60, 4, 64}, {8, 40, 80}}) {
    ASSERT_EQ(loads, static_cast<std::size_t>(2 * kLength - top - bottom));
    const Trace trace = ChainTrace(kLength, 1 << 20, bottom, top, /*trained=*/false);
    const Plan plan = Planned(trace, Steady());
    EXPECT_EQ(NumLoads(plan), loads) << bottom << "/" << top;
    EXPECT_EQ(plan.h2d_bytes, plan.lower_bound_bytes) << bottom << "/" << top;
  }
}

TEST(MakePlan, ExampleOfTheChapter_HasTheFiguresInIt) {
  constexpr std::uint64_t kBytes = std::uint64_t{100} << 20;
  Trace trace = ChainTrace(4, kBytes, 4, 4, /*trained=*/true);
  trace.link = {.h2d_bytes_per_second = 10e9, .d2h_bytes_per_second = 10e9, .latency_seconds = 0};
  const std::vector<std::uint64_t> capacity = {4, 3, 2, 2, 2, 2, 3, 4};
  for (std::size_t t = 0; t < capacity.size(); ++t) {
    trace.moments[t].workspace_bytes = trace.arena_bytes - kBytes * capacity[t];
    trace.moments[t].compute_seconds = t < 4 ? 20e-3 : 40e-3;
  }
  const Plan plan = Planned(trace, PlannerOptions());
  EXPECT_EQ(NumLoads(plan), 6u);
  EXPECT_EQ(plan.h2d_bytes, plan.lower_bound_bytes);
  const double load_seconds = static_cast<double>(kBytes) / 10e9;
  EXPECT_NEAR(plan.predicted_step_seconds, 240e-3 + 3 * load_seconds, 1e-12);
  EXPECT_NEAR(plan.step_lower_bound_seconds, plan.predicted_step_seconds, 1e-12);
  ASSERT_EQ(plan.stalls.size(), 3u);
  for (const Stall& stall : plan.stalls) {
    EXPECT_NEAR(stall.unavoidable_seconds, load_seconds, 1e-12) << stall.moment;
  }
}

TEST(MakePlan, SteadyChainUnderCpu_LoadsAllButTheTurns) {
  PlannerOptions options = Steady();
  options.policy = Policy::kCpu;
  const Trace trace = ChainTrace(64, 1 << 20, 16, 16, /*trained=*/false);
  EXPECT_EQ(NumLoads(Planned(trace, options)), 2u * 64 - 2);
}

TEST(MakePlan, TrainedChain_LoadsAllOnceAndWhatTheTopCannotHold) {
  PlannerOptions options = TestOptions();
  options.objective = Objective::kBytes;
  for (const auto& [bottom, top] : {std::pair{16, 16}, {32, 24}, {40, 8}, {60, 4}}) {
    const Plan plan = Planned(ChainTrace(64, 1 << 20, bottom, top, /*trained=*/true), options);
    EXPECT_EQ(NumLoads(plan), static_cast<std::size_t>(2 * 64 - top));
    EXPECT_EQ(plan.d2h_bytes, std::uint64_t{64} << 20);
    EXPECT_TRUE(plan.resident_at_start.empty());
  }
}

TEST(MakePlan, EverythingFitsAndNothingChanges_PlanIsEmpty) {
  const Plan plan = Planned(ChainTrace(8, 1024, 8, 8, false), Steady());
  EXPECT_TRUE(plan.everything_fits);
  EXPECT_EQ(NumLoads(plan), 0u);
  EXPECT_EQ(plan.h2d_bytes, 0u);
  EXPECT_EQ(plan.resident_at_start.size(), 8u);
  EXPECT_TRUE(plan.stalls.empty());
}

TEST(MakePlan, EverythingFits_LoadsEachChangedChunkOnce) {
  Trace trace = ChainTrace(8, 1024, 8, 8, true);
  trace.chunks[2].frozen = true;
  trace.moments[13].uses[0].invalidates = false;  // a frozen chunk has no gradient
  const Plan plan = Planned(trace, TestOptions());
  EXPECT_TRUE(plan.everything_fits);
  EXPECT_EQ(NumLoads(plan), 7u);
  ASSERT_EQ(plan.resident_at_start.size(), 1u);
  EXPECT_EQ(plan.resident_at_start[0].chunk, 2u);
}

TEST(MakePlan, FrozenChainWithTrainedHead_KeepsFrozenOverTheBoundary) {
  Trace trace = ChainTrace(32, 1024, 20, 12, false);
  for (Chunk& chunk : trace.chunks) chunk.frozen = true;
  PlannerOptions options = TestOptions();
  options.objective = Objective::kBytes;
  EXPECT_EQ(NumLoads(Planned(trace, options)), 2u * 32 - 20 - 12);
}

TEST(MakePlan, DevicePolicyThatFits_GivesEachChunkItsPlace) {
  PlannerOptions options = TestOptions();
  options.policy = Policy::kDevice;
  const Plan plan = Planned(ChainTrace(8, 1024, 8, 8, true), options);
  EXPECT_TRUE(plan.everything_fits);
  EXPECT_EQ(NumLoads(plan), 8u);
}

TEST(MakePlan, DevicePolicyThatDoesNotFit_SaysTheSmallestArena) {
  PlannerOptions options = TestOptions();
  options.policy = Policy::kDevice;
  const Trace trace = ChainTrace(8, 1024, 8, 7, true);
  const absl::Status status = MakePlan(trace, options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("smallest arena that would do is 9.0 KiB"));
  Trace larger = trace;
  larger.arena_bytes = 9216;
  EXPECT_TRUE(MakePlan(larger, options).ok());
  larger.arena_bytes -= 1;
  EXPECT_FALSE(MakePlan(larger, options).ok());
}

TEST(MakePlan, MomentThatDoesNotFit_SaysWhichAndTheSmallestArena) {
  Trace trace = ChainTrace(8, 1024, 4, 3, true);
  trace.moments[5].uses.push_back({.chunk = 0});
  trace.moments[5].uses.push_back({.chunk = 1});
  trace.moments[5].workspace_bytes = 2048;
  const absl::Status status = MakePlan(trace, TestOptions()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("moment 5 uses 3 chunks of together 3.0 KiB beside 2.0 KiB"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("smallest arena that would do is 5.0 KiB"));
  trace.arena_bytes = 5120;
  EXPECT_TRUE(MakePlan(trace, TestOptions()).ok());
  trace.arena_bytes -= 1;
  EXPECT_FALSE(MakePlan(trace, TestOptions()).ok());
}

TEST(MakePlan, BadOptions_AreRefused) {
  const Trace trace = ChainTrace(4, 1024, 4, 3, true);
  PlannerOptions options;
  options.alignment_bytes = 0;
  EXPECT_EQ(MakePlan(trace, options).status().code(), absl::StatusCode::kInvalidArgument);
  options = PlannerOptions();
  options.slack_seconds = -1;
  EXPECT_EQ(MakePlan(trace, options).status().code(), absl::StatusCode::kInvalidArgument);
}

// A moment first issues the loads that this iteration needs.
TEST(MakePlan, LoadsOfTheNextIteration_AreTheLastOfTheirMoment) {
  std::mt19937_64 random(31);
  int mixed = 0;
  for (int i = 0; i < 300; ++i) {
    const RandomShape shape{.num_chunks = static_cast<int>(Draw(random, 3, 10)),
                            .num_moments = static_cast<int>(Draw(random, 3, 12)),
                            .max_size_bytes = 5,
                            .max_uses_per_moment = 3};
    const Plan plan = Planned(RandomTrace(shape, random), Steady());
    for (std::size_t t = 0; t < plan.steps.size(); ++t) {
      const std::vector<Load>& loads = plan.steps[t].loads;
      const auto now = [t](const Load& load) { return load.deadline_moment >= t; };
      EXPECT_TRUE(std::is_partitioned(loads.begin(), loads.end(), now)) << i << " " << t;
      mixed += std::any_of(loads.begin(), loads.end(), now) &&
               !std::all_of(loads.begin(), loads.end(), now);
    }
  }
  EXPECT_GT(mixed, 10);
}

TEST(MakePlan, NoUsesAtAll_IsAnEmptyPlan) {
  Trace trace = ChainTrace(4, 1024, 4, 3, true);
  for (MomentTrace& moment : trace.moments) moment.uses.clear();
  EXPECT_EQ(NumLoads(Planned(trace, TestOptions())), 0u);
  trace.chunks.clear();
  EXPECT_EQ(NumLoads(Planned(trace, TestOptions())), 0u);
}

TEST(MakePlan, SizesNotAligned_ExtentsAre) {
  Trace trace = ChainTrace(12, 1000, 6, 4, true);
  trace.arena_bytes += 400;
  PlannerOptions options;
  options.alignment_bytes = 256;
  for (const Residency& residency : Planned(trace, options).residencies) {
    EXPECT_EQ(residency.device_offset % 256, 0u);
  }
}

TEST(MakePlan, SameTraceTwice_SamePlan) {
  std::mt19937_64 random(21);
  RandomShape shape{.num_chunks = 30, .num_moments = 60, .max_size_bytes = 9};
  const Trace trace = RandomTrace(shape, random);
  EXPECT_EQ(PlanHash(Planned(trace, TestOptions())), PlanHash(Planned(trace, TestOptions())));
}

TEST(MakePlan, ChunksRenamed_OnlyRenamesThePlan) {
  std::mt19937_64 random(22);
  for (int i = 0; i < 300; ++i) {
    RandomShape shape{.num_chunks = 20,
                      .num_moments = 40,
                      .max_size_bytes = i % 2 == 0 ? 1u : 9u,
                      .max_uses_per_moment = 3,
                      .invalidate = true,
                      .freeze = true};
    const Trace trace = RandomTrace(shape, random);
    std::vector<ChunkIndex> renamed(trace.chunks.size());
    for (std::size_t c = 0; c < renamed.size(); ++c) renamed[c] = static_cast<ChunkIndex>(c);
    for (std::size_t c = renamed.size(); c-- > 1;) {
      std::swap(renamed[c], renamed[Draw(random, 0, c)]);
    }
    Trace other = trace;
    for (std::size_t c = 0; c < renamed.size(); ++c) other.chunks[renamed[c]] = trace.chunks[c];
    for (MomentTrace& moment : other.moments) {
      for (Use& use : moment.uses) use.chunk = renamed[use.chunk];
    }
    Plan plan = Planned(trace, TestOptions());
    const Plan other_plan = Planned(other, TestOptions());
    plan.trace_hash = other_plan.trace_hash;
    for (Step& step : plan.steps) {
      for (Load& load : step.loads) load.chunk = renamed[load.chunk];
      for (Drop& drop : step.drops) drop.chunk = renamed[drop.chunk];
    }
    for (Placement& placement : plan.resident_at_start) placement.chunk = renamed[placement.chunk];
    for (Residency& residency : plan.residencies) residency.chunk = renamed[residency.chunk];
    for (Stall& stall : plan.stalls) stall.chunk = renamed[stall.chunk];
    ASSERT_EQ(PlanHash(plan), PlanHash(other_plan)) << "instance " << i;
  }
}

}  // namespace
}  // namespace geminid::planner
