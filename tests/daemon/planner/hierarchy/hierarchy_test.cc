#include "daemon/planner/hierarchy/hierarchy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "daemon/planner/hierarchy/decision_search.h"
#include "tests/daemon/planner/hierarchy/problems.h"

namespace geminid::planner {
namespace {

using ::testing::HasSubstr;

HierarchyPlan Make(const HierarchyProblem& problem) {
  absl::StatusOr<HierarchyPlan> plan = MakeHierarchyPlan(problem);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *std::move(plan) : HierarchyPlan();
}

HierarchyPlan Evaluated(const HierarchyProblem& problem, const Decisions& decisions) {
  absl::StatusOr<HierarchyPlan> plan = EvaluateDecisions(problem, decisions);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *std::move(plan) : HierarchyPlan();
}

std::size_t Count(const HierarchyPlan& plan, OptimizerPlace place) {
  return static_cast<std::size_t>(
      std::count(plan.decisions.optimizer.begin(), plan.decisions.optimizer.end(), place));
}

// Checks the properties of every plan that fits.
void ExpectSound(const HierarchyProblem& problem, const HierarchyPlan& plan) {
  ASSERT_TRUE(plan.fits);
  EXPECT_TRUE(CheckPlan(plan.device_trace, plan.device_plan).ok());
  for (const TierBytes& tier : plan.tiers) {
    EXPECT_EQ(std::accumulate(tier.by_owner.begin(), tier.by_owner.end(), std::uint64_t{0}),
              tier.peak);
    EXPECT_LE(tier.peak, tier.limit);
  }
  const StepSeconds& s = plan.seconds;
  EXPECT_NEAR(s.compute + s.head + s.waits + s.tail + s.optimizer + s.disk, s.step, 1e-9 * s.step);
  for (const double busy : plan.busy_seconds) EXPECT_LE(busy, s.step * (1 + 1e-9));
  EXPECT_LE(plan.any_decisions_lower_bound_seconds, plan.step_lower_bound_seconds);
  EXPECT_LE(plan.step_lower_bound_seconds, s.step * (1 + 1e-9));
  EXPECT_EQ(plan.busy(plan.bottleneck),
            *std::max_element(plan.busy_seconds.begin(), plan.busy_seconds.end()));
  EXPECT_TRUE(EvaluateDecisions(problem, plan.decisions).ok());
}

TEST(MakeHierarchyPlan, EverythingFits_NothingIsHookedOrMoved) {
  const HierarchyProblem problem = Chain({.layers = 8}, 400 * kMiB);
  const HierarchyPlan plan = Make(problem);
  ExpectSound(problem, plan);
  EXPECT_TRUE(plan.everything_on_device);
  EXPECT_EQ(plan.traffic.up(), 0u);
  EXPECT_EQ(plan.traffic.down(), 0u);
  EXPECT_EQ(plan.tier(Tier::kHost).peak, 0u);
  // 8 layers of 2 gathered + 2 + 2 + 8 + 2 MiB, 4 MiB of activations each, 1 MiB of workspace.
  EXPECT_EQ(plan.tier(Tier::kDevice).peak, (8 * (16 + 4) + 1) * kMiB);
  EXPECT_THAT(ExplainHierarchyPlan(problem, plan), HasSubstr("Everything fits on the device"));
}

TEST(MakeHierarchyPlan, RandomProblems_AreSoundAndNeverWorseThanTheSimpleChoices) {
  for (std::uint32_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    const HierarchyProblem problem = RandomProblem(6, seed);
    const HierarchyPlan plan = Make(problem);
    ExpectSound(problem, plan);
    const double allowed =
        plan.seconds.step * (plan.everything_on_device ? 1 - kGainWorthHooks : 1);
    Decisions decisions = plan.decisions;
    for (const OptimizerPlace place :
         {OptimizerPlace::kHost, OptimizerPlace::kDevice, OptimizerPlace::kStreamed}) {
      for (std::size_t c = 0; c < decisions.optimizer.size(); ++c) {
        const bool frozen = problem.optimizer[c].parameters == 0;
        decisions.optimizer[c] =
            frozen && place == OptimizerPlace::kStreamed ? OptimizerPlace::kHost : place;
      }
      for (const bool keep : {false, true}) {
        decisions.activations = plan.decisions.activations;
        if (keep) {
          decisions.activations.assign(decisions.activations.size(), ActivationPlace::kKeep);
        }
        const HierarchyPlan simple = Evaluated(problem, decisions);
        if (!simple.fits) continue;
        EXPECT_LE(allowed, simple.seconds.step * (1 + 1e-12));
      }
    }
  }
}

TEST(MakeHierarchyPlan, AnyPolicyModeAndShortage_IsSoundOrSaysWhatHelps) {
  int fitting = 0;
  int refused = 0;
  int on_disk = 0;
  for (std::uint32_t seed = 1; seed <= 90; ++seed) {
    SCOPED_TRACE(seed);
    const bool large = seed % 3 == 0;
    HierarchyProblem problem = RandomProblem((large ? 10 : 1) + seed % 5, seed);
    problem.options.planner.policy = static_cast<Policy>(seed / 3 % 3);
    problem.options.update_during_backward = seed % 2 == 0;
    if (seed % 4 == 0) problem.options.gpu_margin_mem_ratio = 0.5;
    problem.machine.host_bytes = ((large ? 100 : 0) + seed % 7 * 16) * kMiB;
    if (seed % 5 < 3) {
      problem.machine.disk_read_bytes_per_second = 2e9;
      problem.machine.disk_write_bytes_per_second = 1e9;
      problem.machine.disk_bytes = seed % 5 * 100 * kMiB;
      problem.options.gpu_margin_mem_ratio = 0;
      problem.machine.disk_endurance_bytes = 1e15;
    }
    if (seed % 11 == 0) problem.trace.arena_bytes /= 8;
    const HierarchyPlan plan = Make(problem);
    if (plan.fits) {
      ++fitting;
      on_disk += plan.disk.used ? 1 : 0;
      ExpectSound(problem, plan);
    } else {
      ++refused;
      ASSERT_FALSE(plan.remedies.empty());
      EXPECT_GT(plan.remedies[0].more_bytes, 0u);
      EXPECT_TRUE(plan.device_plan.steps.empty());
    }
    EXPECT_FALSE(ExplainHierarchyPlan(problem, plan).empty());
  }
  EXPECT_GT(fitting, 20);
  EXPECT_GT(refused, 10);
  EXPECT_GT(on_disk, 1);
}

// Greedy filling takes the items in order of index, with any option that fits and shortens the
// step.
TEST(MakeHierarchyPlan, RandomProblems_NeverWorseThanGreedyFilling) {
  for (std::uint32_t seed = 1; seed <= 40; ++seed) {
    const HierarchyProblem problem = RandomProblem(5, seed);
    const HierarchyPlan plan = Make(problem);
    Decisions greedy = AllHost(problem);
    for (std::size_t i = 0; i < greedy.activations.size(); ++i) {
      const ActivationItem& item = problem.activations[i];
      if (item.can_recompute) {
        greedy.activations[i] = ActivationPlace::kRecompute;
      } else if (item.can_offload) {
        greedy.activations[i] = ActivationPlace::kOffload;
      }
    }
    HierarchyPlan best = Evaluated(problem, greedy);
    const auto try_it = [&](const Decisions& decisions) {
      HierarchyPlan tried = Evaluated(problem, decisions);
      if (!tried.fits || (best.fits && tried.seconds.step >= best.seconds.step)) return;
      best = std::move(tried);
      greedy = decisions;
    };
    for (std::size_t i = 0; i < greedy.activations.size(); ++i) {
      Decisions decisions = greedy;
      decisions.activations[i] = ActivationPlace::kKeep;
      try_it(decisions);
    }
    for (std::size_t c = 0; c < greedy.optimizer.size(); ++c) {
      Decisions decisions = greedy;
      decisions.optimizer[c] = OptimizerPlace::kDevice;
      try_it(decisions);
    }
    if (!best.fits) continue;
    ASSERT_TRUE(plan.fits);
    const double allowed =
        plan.seconds.step * (plan.everything_on_device ? 1 - kGainWorthHooks : 1);
    EXPECT_LE(allowed, best.seconds.step * (1 + 1e-12)) << "seed " << seed;
  }
}

TEST(MakeHierarchyPlan, MoreDeviceMemory_IsNeverSlowerOnAChain) {
  for (const double link : {3e9, 50e9}) {
    double before = 1e9;
    for (std::uint64_t arena = 9; arena <= 170; arena += 7) {
      HierarchyProblem problem = Chain({.layers = 8}, arena * kMiB);
      problem.machine.up_bytes_per_second = link;
      problem.machine.down_bytes_per_second = link;
      problem.machine.host_memory_bytes_per_second = 40e9;
      const HierarchyPlan plan = Make(problem);
      if (!plan.fits) {
        ASSERT_EQ(before, 1e9) << "what fitted fits in more";
        continue;
      }
      const double allowed = plan.everything_on_device ? before / (1 - kGainWorthHooks) : before;
      EXPECT_LE(plan.seconds.step, allowed * (1 + 1e-9)) << arena << " MiB, " << link << " B/s";
      before = std::min(before, plan.seconds.step);
    }
    EXPECT_LT(before, 1e9);
  }
}

TEST(MakeHierarchyPlan, FasterMachine_IsNeverSlower) {
  const auto step = [](const auto& change) {
    HierarchyProblem problem = Chain({.layers = 6}, 40 * kMiB);
    problem.machine.up_bytes_per_second = 5e9;
    problem.machine.down_bytes_per_second = 5e9;
    problem.machine.host_memory_bytes_per_second = 30e9;
    change(problem.machine);
    return Make(problem).seconds.step;
  };
  const double plain = step([](Machine&) {});
  EXPECT_LE(step([](Machine& m) { m.up_bytes_per_second *= 2; }), plain * (1 + 1e-9));
  EXPECT_LE(step([](Machine& m) { m.down_bytes_per_second *= 2; }), plain * (1 + 1e-9));
  EXPECT_LE(step([](Machine& m) { m.host_memory_bytes_per_second *= 2; }), plain * (1 + 1e-9));
  EXPECT_LE(plain, step([](Machine& m) { m.node_up_bytes_per_second = 3e9; }) * (1 + 1e-9));
}

// The device has space for gradients and staging but little for state, and updates are the
// bottleneck.
HierarchyProblem UpdateBound(std::uint32_t ranks) {
  HierarchyProblem problem = Chain({.layers = 16, .activation_bytes = 0, .forward_seconds = 1e-4},
                                   (16 * 2 + 36 + 8) * kMiB);
  problem.machine.host_memory_bytes_per_second = 614e9;
  problem.machine.ranks_on_node = ranks;
  problem.machine.world_size = ranks;
  return problem;
}

TEST(MakeHierarchyPlan, OneGpu_UpdatesOnTheCpuRatherThanStream) {
  const HierarchyPlan plan = Make(UpdateBound(1));
  ASSERT_TRUE(plan.fits);
  EXPECT_EQ(Count(plan, OptimizerPlace::kStreamed), 0u);
  EXPECT_GT(Count(plan, OptimizerPlace::kHost), 0u);
}

TEST(MakeHierarchyPlan, EightGpus_StreamSomeOfTheState) {
  const HierarchyProblem problem = UpdateBound(8);
  const HierarchyPlan plan = Make(problem);
  ASSERT_TRUE(plan.fits);
  EXPECT_GT(Count(plan, OptimizerPlace::kStreamed), 0u);
  EXPECT_LT(plan.seconds.step, Evaluated(problem, AllHost(problem)).seconds.step);
}

TEST(MakeHierarchyPlan, UpdatesExposed_StateOfTheFirstNeededGoesToTheDevice) {
  // The CPU needs longer than forward lasts. There is space for the state of a few chunks.
  HierarchyProblem problem = Chain({.layers = 8, .activation_bytes = 0}, 80 * kMiB);
  problem.machine.host_memory_bytes_per_second = 20e9;
  problem.machine.up_bytes_per_second = 8e9;
  problem.machine.down_bytes_per_second = 8e9;
  const HierarchyPlan plan = Make(problem);
  ASSERT_TRUE(plan.fits);
  EXPECT_GT(Count(plan, OptimizerPlace::kDevice), 0u);
  EXPECT_EQ(plan.decisions.optimizer[0], OptimizerPlace::kDevice);
  EXPECT_LT(plan.seconds.optimizer, Evaluated(problem, AllHost(problem)).seconds.optimizer);
}

TEST(MakeHierarchyPlan, UpdateDuringBackward_HidesWhatAfterBackwardIsExposed) {
  HierarchyProblem problem = Chain({.layers = 8, .activation_bytes = 0}, 20 * kMiB);
  problem.machine.host_memory_bytes_per_second = 40e9;
  const HierarchyPlan after = Evaluated(problem, AllHost(problem));
  problem.options.update_during_backward = true;
  const HierarchyPlan during = Evaluated(problem, AllHost(problem));
  EXPECT_LT(during.seconds.optimizer, after.seconds.optimizer);
  ExpectSound(problem, Make(problem));
}

TEST(MakeHierarchyPlan, MarginRatio_BoundsTheStateOnTheDevice) {
  HierarchyProblem problem = Chain({.layers = 8}, 400 * kMiB);
  // The fullest moment needs at least the used chunk, its whole activation, 7 kept parts (or none
  // if offloaded), and the workspace.
  for (const double ratio : {0.0, 0.1, 0.3}) {
    problem.options.gpu_margin_mem_ratio = ratio;
    const HierarchyPlan plan = Make(problem);
    ExpectSound(problem, plan);
    const auto state = Count(plan, OptimizerPlace::kDevice) * 14 * kMiB;
    EXPECT_LE(static_cast<double>(state), ratio * static_cast<double>(400 * kMiB));
    EXPECT_EQ(state > 0, ratio > 0);
  }
  problem.options.gpu_margin_mem_ratio = 0;
  Decisions decisions = AllHost(problem);
  decisions.optimizer[0] = OptimizerPlace::kDevice;
  EXPECT_EQ(EvaluateDecisions(problem, decisions).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(MakeHierarchyPlan, FastRecompute_IsPreferredToASlowLink) {
  HierarchyProblem problem = Chain({.layers = 8}, 20 * kMiB);
  problem.machine.up_bytes_per_second = 1e9;
  problem.machine.down_bytes_per_second = 1e9;
  for (ActivationItem& item : problem.activations) item.recompute_seconds = 1e-5;
  const HierarchyPlan plan = Make(problem);
  ASSERT_TRUE(plan.fits);
  const std::vector<ActivationPlace>& places = plan.decisions.activations;
  EXPECT_EQ(std::count(places.begin(), places.end(), ActivationPlace::kOffload), 0);
  EXPECT_GT(std::count(places.begin(), places.end(), ActivationPlace::kRecompute), 0);
}

TEST(MakeHierarchyPlan, SlowRecompute_GivesWayToAFastLink) {
  HierarchyProblem problem = Chain({.layers = 8}, 20 * kMiB);
  for (ActivationItem& item : problem.activations) item.recompute_seconds = 1e-2;
  const HierarchyPlan plan = Make(problem);
  ASSERT_TRUE(plan.fits);
  const std::vector<ActivationPlace>& places = plan.decisions.activations;
  EXPECT_EQ(std::count(places.begin(), places.end(), ActivationPlace::kRecompute), 0);
  EXPECT_GT(std::count(places.begin(), places.end(), ActivationPlace::kOffload), 0);
}

TEST(MakeHierarchyPlan, DeviceTooSmall_SaysHowMuchIsMissingAndThatIsRight) {
  const HierarchyProblem problem = Chain({.layers = 8}, 6 * kMiB);
  const HierarchyPlan plan = Make(problem);
  ASSERT_FALSE(plan.fits);
  ASSERT_EQ(plan.remedies.size(), 1u);
  EXPECT_EQ(plan.remedies[0].tier, Tier::kDevice);
  EXPECT_EQ(plan.seconds.step, 0);
  HierarchyProblem more = problem;
  more.trace.arena_bytes += plan.remedies[0].more_bytes;
  EXPECT_TRUE(Make(more).fits);
  EXPECT_THAT(ExplainHierarchyPlan(problem, plan), HasSubstr("It does not fit"));
}

TEST(MakeHierarchyPlan, SameProblem_SameBits) {
  for (std::uint32_t seed = 1; seed <= 10; ++seed) {
    const HierarchyProblem problem = RandomProblem(6, seed);
    EXPECT_EQ(HierarchyPlanHash(Make(problem)), HierarchyPlanHash(Make(problem)));
    HierarchyProblem other = problem;
    other.trace.moments[0].compute_seconds *= 1.5;
    EXPECT_NE(HierarchyPlanHash(Make(problem)), HierarchyPlanHash(Make(other)));
  }
}

TEST(MakeHierarchyPlan, ThousandsOfItems_AreSoundAndBetterThanAllOnTheHost) {
  HierarchyProblem problem = Chain({.layers = 1500,
                                    .parameters = 1 << 18,
                                    .activation_bytes = 2 * kMiB,
                                    .kept_bytes = kMiB / 8,
                                    .forward_seconds = 1e-4},
                                   3 * kGiB / 2);
  problem.machine.ranks_on_node = 8;
  problem.machine.world_size = 8;
  const HierarchyPlan plan = Make(problem);
  ExpectSound(problem, plan);
  Decisions host = AllHost(problem);
  host.activations = plan.decisions.activations;
  EXPECT_LT(plan.seconds.step, Evaluated(problem, host).seconds.step);
}

TEST(EvaluateDecisions, AllHost_MovesWeightsUpAndGradientsDownOnce) {
  const HierarchyProblem problem = Chain({.layers = 4}, 100 * kMiB);
  const HierarchyPlan plan = Evaluated(problem, AllHost(problem));
  ExpectSound(problem, plan);
  EXPECT_EQ(plan.traffic.weights_up, 4 * 2 * kMiB);
  EXPECT_EQ(plan.traffic.gradients_down, 4 * 2 * kMiB);
  // Per parameter, the kernel moves 2 x 12 + 2 bytes and the copies 2 + 2.
  EXPECT_EQ(plan.traffic.host_memory, 4 * 30 * kMiB);
  EXPECT_EQ(plan.tier(Tier::kHost).peak, (4 * 14 + 12) * kMiB);
  EXPECT_NEAR(plan.busy(Resource::kCpuUpdate), 4 * 28.0 * kMiB / (0.8 * 400e9), 1e-12);
}

TEST(EvaluateDecisions, WrongDecisions_AreRefused) {
  HierarchyProblem problem = Chain({.layers = 2}, 100 * kMiB);
  problem.activations[0].can_offload = false;
  problem.activations[1].can_recompute = false;
  Decisions decisions = AllHost(problem);
  decisions.activations[0] = ActivationPlace::kOffload;
  EXPECT_THAT(EvaluateDecisions(problem, decisions).status().message(), HasSubstr("offload"));
  decisions = AllHost(problem);
  decisions.activations[1] = ActivationPlace::kRecompute;
  EXPECT_THAT(EvaluateDecisions(problem, decisions).status().message(), HasSubstr("recompute"));
  decisions.optimizer.pop_back();
  EXPECT_EQ(EvaluateDecisions(problem, decisions).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ValidateHierarchyProblem, EachWrongField_IsNamed) {
  const auto refused = [](auto change, const char* field) {
    HierarchyProblem problem = Chain({.layers = 2}, 100 * kMiB);
    ASSERT_TRUE(ValidateHierarchyProblem(problem).ok());
    change(problem);
    const absl::Status status = ValidateHierarchyProblem(problem);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field;
    EXPECT_THAT(std::string(status.message()), HasSubstr(field));
  };
  refused([](HierarchyProblem& p) { p.optimizer.pop_back(); }, "optimizer");
  refused([](HierarchyProblem& p) { p.optimizer[1].moment_bytes = 1ull << 60; }, "optimizer[1]");
  refused([](HierarchyProblem& p) { p.trace.chunks[1].frozen = true; }, "optimizer[1]");
  refused([](HierarchyProblem& p) { p.activations[1].consumed = 4; }, "consumed");
  refused([](HierarchyProblem& p) { p.activations[1].produced = 3; }, "produced");
  refused([](HierarchyProblem& p) { p.activations[0].kept_bytes = kGiB; }, "kept_bytes");
  refused([](HierarchyProblem& p) { p.activations[0].recompute_seconds = -1; }, "recompute");
  refused([](HierarchyProblem& p) { p.options.gpu_margin_mem_ratio = 1.5; }, "ratio");
  refused([](HierarchyProblem& p) { p.machine.up_bytes_per_second = 0; }, "up_bytes");
  refused([](HierarchyProblem& p) { p.trace.moments.clear(); }, "moments");
}

}  // namespace
}  // namespace geminid::planner
