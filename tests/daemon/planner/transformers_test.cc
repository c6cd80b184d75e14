#include "tests/daemon/planner/transformers.h"

#include <cctype>
#include <cstdio>
#include <string>

#include "absl/strings/str_format.h"
#include "daemon/planner/make_plan.h"
#include "gtest/gtest.h"

namespace geminid::planner {
namespace {

// The most that a plan for chunks of different sizes may cost: bytes over bound.
constexpr double kMostRatio = 1.03;

struct Memory {
  std::uint64_t gigabytes;
  std::uint64_t batch;
};
constexpr Memory kMemories[] = {{6, 1}, {24, 4}, {32, 4}, {80, 16}};

double Ratio(const Plan& plan) {
  if (plan.lower_bound_bytes == 0) return plan.h2d_bytes == 0 ? 1 : 1e9;
  return static_cast<double>(plan.h2d_bytes) / static_cast<double>(plan.lower_bound_bytes);
}

Plan Planned(const Trace& trace, const PlannerOptions& options) {
  absl::StatusOr<Plan> plan = MakePlan(trace, options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  if (!plan.ok()) return {};
  EXPECT_TRUE(CheckPlan(trace, *plan).ok()) << CheckPlan(trace, *plan);
  return *std::move(plan);
}

// Whether every moment's chunks fit beside its workspace, by the definition.
bool HoldsEveryOperator(const Trace& trace) {
  for (const MomentTrace& moment : trace.moments) {
    std::uint64_t bytes = moment.workspace_bytes;
    for (const Use& use : moment.uses) bytes += trace.chunks[use.chunk].size_bytes;
    if (bytes > trace.arena_bytes) return false;
  }
  return true;
}

class PublishedModels : public ::testing::TestWithParam<Transformer> {
 protected:
  static void ExpectNearTheBound(const Trace& trace, const std::string& what);
};

void PublishedModels::ExpectNearTheBound(const Trace& trace, const std::string& what) {
  for (const bool change : {true, false}) {
    PlannerOptions options;
    options.weights_change_between_iterations = change;
    const Plan fast = Planned(trace, options);
    options.objective = Objective::kBytes;
    const Plan least = Planned(trace, options);
    options.policy = Policy::kCpu;
    const Plan cpu = Planned(trace, options);
    EXPECT_LE(Ratio(least), kMostRatio) << what << ", weights change: " << change;
    EXPECT_LE(fast.predicted_step_seconds, least.predicted_step_seconds * (1 + 1e-3)) << what;
    EXPECT_LE(fast.predicted_step_seconds, cpu.predicted_step_seconds * (1 + 1e-3)) << what;
    EXPECT_GE(fast.predicted_step_seconds, fast.step_lower_bound_seconds * (1 - 1e-9)) << what;
    std::printf("%s, %-13s | %6.4f | %6.4f %5.3f | %6.4f %5.3f\n", what.c_str(),
                change ? "trained" : "weights stay", Ratio(least), Ratio(fast),
                fast.predicted_step_seconds / fast.step_lower_bound_seconds, Ratio(cpu),
                cpu.predicted_step_seconds / fast.step_lower_bound_seconds);
  }
}

// Columns: bytes over bound for the fewest bytes; bytes and step over their bounds for the fastest
// step; and the same for the policy cpu.
TEST_P(PublishedModels, AnyMemory_PlanIsWithinThreePercentOfTheBound) {
  for (const Memory& memory : kMemories) {
    for (const bool recompute : {true, false}) {
      const Trace trace =
          TransformerTrace(GetParam(), {.device_bytes = memory.gigabytes * 1000000000,
                                        .batch = memory.batch,
                                        .recompute = recompute});
      const std::string what =
          absl::StrFormat("%-9s %2d GB %-11s", GetParam().name, memory.gigabytes,
                          recompute ? "recomputed" : "saved");
      if (HoldsEveryOperator(trace)) {
        ExpectNearTheBound(trace, what);
        continue;
      }
      EXPECT_TRUE(absl::IsResourceExhausted(MakePlan(trace, PlannerOptions()).status()));
      std::printf("%s: an operator does not fit beside the activations\n", what.c_str());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Transformers, PublishedModels,
                         ::testing::ValuesIn(PublishedTransformers().begin(),
                                             PublishedTransformers().end()),
                         [](const ::testing::TestParamInfo<Transformer>& model) {
                           std::string name = model.param.name;
                           std::erase_if(name, [](unsigned char c) { return !std::isalnum(c); });
                           return name;
                         });

}  // namespace
}  // namespace geminid::planner
