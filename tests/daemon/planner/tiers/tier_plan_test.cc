#include "daemon/planner/tiers/tier_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "daemon/planner/make_plan.h"
#include "daemon/planner/tiers/occupancy.h"
#include "daemon/planner/tiers/validate.h"
#include "tests/daemon/planner/tiers/problems.h"

namespace geminid::planner {
namespace {

using ::testing::HasSubstr;

TierPlan Evaluated(const TierProblem& problem, const Decisions& decisions) {
  absl::StatusOr<TierPlan> plan = EvaluateDecisions(problem, decisions);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *std::move(plan) : TierPlan();
}

// Checks the properties of every plan that fits.
void ExpectSound(const TierProblem& problem, const TierPlan& plan) {
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
  EXPECT_LE(plan.step_lower_bound_seconds, s.step * (1 + 1e-9));
  EXPECT_EQ(plan.busy(plan.bottleneck),
            *std::max_element(plan.busy_seconds.begin(), plan.busy_seconds.end()));
  EXPECT_TRUE(EvaluateDecisions(problem, plan.decisions).ok());
}

Decisions AllOn(const TierProblem& problem, OptimizerPlace place) {
  Decisions decisions = AllHost(problem);
  for (std::size_t c = 0; c < decisions.optimizer.size(); ++c) {
    const bool frozen = problem.optimizer[c].parameters == 0;
    if (!frozen || place != OptimizerPlace::kStreamed) decisions.optimizer[c] = place;
  }
  return decisions;
}

// The activations that can be are at `place`, with three places if they are offloaded.
Decisions WithActivations(const TierProblem& problem, Decisions decisions, ActivationPlace place) {
  std::uint32_t offloaded = 0;
  for (std::size_t i = 0; i < problem.activations.size(); ++i) {
    const ActivationItem& item = problem.activations[i];
    const bool allowed =
        place == ActivationPlace::kKeep ||
        (place == ActivationPlace::kOffload ? item.can_offload : item.can_recompute);
    if (!allowed) continue;
    decisions.activations[i] = place;
    offloaded += place == ActivationPlace::kOffload ? 1 : 0;
  }
  decisions.activation_places = std::min(3u, offloaded);
  return decisions;
}

TEST(EvaluateDecisions, EverythingFits_NothingIsHookedOrMoved) {
  const TierProblem problem = Chain({.layers = 8}, 400 * kMiB);
  const TierPlan plan = Evaluated(problem, AllOn(problem, OptimizerPlace::kDevice));
  ExpectSound(problem, plan);
  EXPECT_TRUE(plan.everything_on_device);
  EXPECT_EQ(plan.traffic.up(), 0u);
  EXPECT_EQ(plan.traffic.down(), 0u);
  EXPECT_EQ(plan.tier(Tier::kHost).peak, 0u);
  // 8 layers of 2 gathered + 2 + 2 + 8 + 2 MiB, 4 MiB of activations each, 1 MiB of workspace.
  EXPECT_EQ(plan.tier(Tier::kDevice).peak, (8 * (16 + 4) + 1) * kMiB);
  EXPECT_THAT(ExplainTierPlan(problem, plan), HasSubstr("Everything fits on the device"));
}

TEST(EvaluateDecisions, RandomProblemsAndDecisions_AreSoundOrSayWhatIsMissing) {
  int fitting = 0, refused = 0;
  for (std::uint32_t seed = 1; seed <= 60; ++seed) {
    TierProblem problem = RandomProblem(1 + seed % 9, seed);
    if (seed % 3 == 0) problem.machine.host_bytes = seed * kMiB;
    for (const OptimizerPlace place :
         {OptimizerPlace::kHost, OptimizerPlace::kDevice, OptimizerPlace::kStreamed}) {
      for (const ActivationPlace activations :
           {ActivationPlace::kKeep, ActivationPlace::kOffload, ActivationPlace::kRecompute}) {
        SCOPED_TRACE(testing::Message() << seed << " " << OptimizerPlaceName(place) << " "
                                        << ActivationPlaceName(activations));
        const TierPlan plan =
            Evaluated(problem, WithActivations(problem, AllOn(problem, place), activations));
        EXPECT_FALSE(ExplainTierPlan(problem, plan).empty());
        if (plan.fits) {
          ++fitting;
          ExpectSound(problem, plan);
          continue;
        }
        ++refused;
        EXPECT_TRUE(plan.device_plan.steps.empty());
        EXPECT_EQ(plan.seconds.step, 0);
        EXPECT_GT(std::accumulate(plan.lacking.begin(), plan.lacking.end(), std::uint64_t{0}), 0u);
      }
    }
  }
  EXPECT_GT(fitting, 100);
  EXPECT_GT(refused, 50);
}

TEST(EvaluateDecisions, FasterMachine_IsNeverSlower) {
  const auto step = [](const auto& change) {
    TierProblem problem = Chain({.layers = 6}, 40 * kMiB);
    problem.machine.up_bytes_per_second = 5e9;
    problem.machine.down_bytes_per_second = 5e9;
    problem.machine.host_memory_bytes_per_second = 30e9;
    change(problem.machine);
    return Evaluated(problem, AllHost(problem)).seconds.step;
  };
  const double plain = step([](Machine&) {});
  EXPECT_LE(step([](Machine& m) { m.up_bytes_per_second *= 2; }), plain * (1 + 1e-9));
  EXPECT_LE(step([](Machine& m) { m.down_bytes_per_second *= 2; }), plain * (1 + 1e-9));
  EXPECT_LE(step([](Machine& m) { m.host_memory_bytes_per_second *= 2; }), plain * (1 + 1e-9));
  EXPECT_LE(plain, step([](Machine& m) { m.node_up_bytes_per_second = 3e9; }) * (1 + 1e-9));
}

// The turn of docs/planner.md: one device leaves updates to the CPU, eight are faster streaming.
TEST(EvaluateDecisions, UpdatesAreTheBottleneck_EightDevicesStreamFasterAndOneDoesNot) {
  for (const std::uint32_t ranks : {1u, 8u}) {
    TierProblem problem =
        Chain({.layers = 16, .activation_bytes = 0, .forward_seconds = 1e-4}, 200 * kMiB);
    problem.machine.host_memory_bytes_per_second = 614e9;
    problem.machine.ranks_on_node = problem.machine.world_size = ranks;
    const double host = Evaluated(problem, AllHost(problem)).seconds.step;
    const double streamed =
        Evaluated(problem, AllOn(problem, OptimizerPlace::kStreamed)).seconds.step;
    EXPECT_EQ(streamed < host, ranks == 8) << ranks;
  }
}

TEST(EvaluateDecisions, MissingBytes_AreThoseWithWhichItFits) {
  for (const Tier tier : {Tier::kDevice, Tier::kHost}) {
    TierProblem problem = Chain({.layers = 8}, tier == Tier::kDevice ? 30 * kMiB : kGiB);
    if (tier == Tier::kHost) problem.machine.host_bytes = 40 * kMiB;
    std::uint64_t& limit =
        tier == Tier::kDevice ? problem.trace.arena_bytes : problem.machine.host_bytes;
    const TierPlan plan = Evaluated(problem, AllHost(problem));
    ASSERT_FALSE(plan.fits);
    EXPECT_THAT(ExplainTierPlan(problem, plan), HasSubstr("It does not fit"));
    limit += plan.lacking[static_cast<std::size_t>(tier)];
    EXPECT_TRUE(Evaluated(problem, AllHost(problem)).fits) << TierName(tier);
    limit -= 4096;
    EXPECT_FALSE(Evaluated(problem, AllHost(problem)).fits) << TierName(tier);
  }
}

// Three places of 4 MiB on the device; the other five of eight activations on the host.
TEST(EvaluateDecisions, OffloadedActivations_AreInPlacesAndOnTheHost) {
  const TierProblem problem = Chain({.layers = 8}, 100 * kMiB);
  const TierPlan plan =
      Evaluated(problem, WithActivations(problem, AllHost(problem), ActivationPlace::kOffload));
  ExpectSound(problem, plan);
  EXPECT_EQ(plan.tier(Tier::kDevice).of(Owner::kActivations), 3 * 4 * kMiB);
  EXPECT_EQ(plan.tier(Tier::kHost).of(Owner::kActivations), 5 * 4 * kMiB);
  EXPECT_EQ(plan.traffic.activations_down, 5 * 4 * kMiB);
  EXPECT_EQ(plan.traffic.activations_up, 5 * 4 * kMiB);
  EXPECT_THAT(ExplainTierPlan(problem, plan), HasSubstr("8 offloaded, 0 recomputed.\nThe last 3"));
}

TEST(EvaluateDecisions, AllHost_MovesWeightsUpAndGradientsDownOnce) {
  const TierProblem problem = Chain({.layers = 4}, 100 * kMiB);
  const TierPlan plan = Evaluated(problem, AllHost(problem));
  ExpectSound(problem, plan);
  EXPECT_EQ(plan.traffic.weights_up, 4 * 2 * kMiB);
  EXPECT_EQ(plan.traffic.gradients_down, 4 * 2 * kMiB);
  // Per parameter, the kernel moves 2 x 12 + 2 bytes and the copies 2 + 2.
  EXPECT_EQ(plan.traffic.host_memory, 4 * 30 * kMiB);
  EXPECT_EQ(plan.tier(Tier::kHost).peak, (4 * 14 + 12) * kMiB);
  EXPECT_NEAR(plan.busy(Resource::kCpuUpdate), 4 * 28.0 * kMiB / (0.8 * 400e9), 1e-12);
}

// Copies of activations go down in the forward pass and up in the backward pass. So where they are
// the bottleneck, each direction of the link is free for at least half of the step.
TEST(EvaluateDecisions, OffloadingOverASlowLink_LeavesHalfOfItToWeights) {
  TierProblem problem = Chain({.layers = 8, .forward_seconds = 1e-6}, 100 * kMiB);
  problem.machine.latency_seconds = 0;
  const Decisions decisions = WithActivations(problem, AllHost(problem), ActivationPlace::kOffload);
  const TierPlan plan = Evaluated(problem, decisions);
  ExpectSound(problem, plan);
  const double waited = OffloadWaitSeconds(problem, decisions);
  EXPECT_GT(waited, 10 * plan.seconds.compute);
  const auto others = static_cast<double>(plan.traffic.weights_up + plan.traffic.gradients_down);
  EXPECT_LE(plan.seconds.step - plan.seconds.optimizer,
            plan.seconds.compute + waited + 2 * others / 50e9);
}

TEST(EvaluateDecisions, WrongDecisions_AreRefused) {
  TierProblem problem = Chain({.layers = 2}, 100 * kMiB);
  problem.activations[0].can_offload = false;
  problem.activations[1].can_recompute = false;
  Decisions decisions = AllHost(problem);
  decisions.activations[0] = ActivationPlace::kOffload;
  EXPECT_THAT(EvaluateDecisions(problem, decisions).status().message(), HasSubstr("offload"));
  decisions = AllHost(problem);
  decisions.activations[1] = ActivationPlace::kRecompute;
  EXPECT_THAT(EvaluateDecisions(problem, decisions).status().message(), HasSubstr("recompute"));
  decisions = AllHost(problem);
  decisions.activations[1] = ActivationPlace::kOffload;
  EXPECT_THAT(EvaluateDecisions(problem, decisions).status().message(),
              HasSubstr("activation_places is 0"));
  decisions.activation_places = 2;
  EXPECT_THAT(EvaluateDecisions(problem, decisions).status().message(),
              HasSubstr("activation_places is 2 for 1"));
  decisions.optimizer.pop_back();
  EXPECT_EQ(EvaluateDecisions(problem, decisions).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ValidateTierProblem, EachWrongField_IsNamed) {
  const auto refused = [](auto change, const char* field) {
    TierProblem problem = Chain({.layers = 2}, 100 * kMiB);
    ASSERT_TRUE(ValidateTierProblem(problem).ok());
    change(problem);
    const absl::Status status = ValidateTierProblem(problem);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field;
    EXPECT_THAT(std::string(status.message()), HasSubstr(field));
  };
  refused([](TierProblem& p) { p.optimizer.pop_back(); }, "optimizer");
  refused([](TierProblem& p) { p.optimizer[1].moment_bytes = 1ull << 60; }, "optimizer[1]");
  refused([](TierProblem& p) { p.trace.chunks[1].frozen = true; }, "optimizer[1]");
  refused([](TierProblem& p) { p.activations[1].consumed = 4; }, "consumed");
  refused([](TierProblem& p) { p.activations[1].produced = 3; }, "produced");
  refused([](TierProblem& p) { p.activations[0].kept_bytes = kGiB; }, "kept_bytes");
  refused([](TierProblem& p) { p.activations[0].recompute_seconds = -1; }, "recompute");
  refused([](TierProblem& p) { p.planner_options.alignment_bytes = 0; }, "alignment_bytes");
  refused([](TierProblem& p) { p.machine.up_bytes_per_second = 0; }, "up_bytes");
  refused([](TierProblem& p) { p.trace.moments.clear(); }, "moments");
}

}  // namespace
}  // namespace geminid::planner
