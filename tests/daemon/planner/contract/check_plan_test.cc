#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/planner/make_plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/daemon/planner/traces.h"

namespace geminid::planner {
namespace {

using ::testing::HasSubstr;

class CheckPlanTest : public ::testing::Test {
 protected:
  CheckPlanTest() : trace_(ChainTrace(12, 1024, 6, 4, /*trained=*/true)) {
    PlannerOptions options;
    options.alignment_bytes = 512;
    absl::StatusOr<Plan> plan = MakePlan(trace_, options);
    EXPECT_TRUE(plan.ok()) << plan.status();
    plan_ = *std::move(plan);
    EXPECT_TRUE(CheckPlan(trace_, plan_).ok()) << CheckPlan(trace_, plan_);
  }

  // The i-th load of the iteration.
  Load& LoadOf(Plan& plan, std::uint32_t i) {
    for (Step& step : plan.steps) {
      for (Load& load : step.loads) {
        if (load.order == i) return load;
      }
    }
    ADD_FAILURE() << "no load " << i;
    return plan.steps[0].loads[0];
  }

  void ExpectRefused(const std::function<void(Plan&)>& corrupt, const std::string& reason) {
    Plan plan = plan_;
    corrupt(plan);
    const absl::Status status = CheckPlan(trace_, plan);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(status.message()), HasSubstr(reason));
  }

  Trace trace_;
  Plan plan_;
};

TEST_F(CheckPlanTest, OffsetOfAnotherChunk_Overlaps) {
  ExpectRefused(
      [&](Plan& plan) {
        LoadOf(plan, 1).device_offset = LoadOf(plan, 0).device_offset;
        LoadOf(plan, 2).device_offset = LoadOf(plan, 0).device_offset;
      },
      "overlaps");
}

TEST_F(CheckPlanTest, FewerBytesOrSecondsThanTheBounds_IsRefused) {
  ExpectRefused([](Plan& plan) { plan.lower_bound_bytes = plan.h2d_bytes + 1; },
                "less than its lower bound");
  ExpectRefused([](Plan& plan) { plan.predicted_step_seconds *= 0.5; },
                "s, less than its lower bound");
}

TEST_F(CheckPlanTest, HalfOverlap_Overlaps) {
  ExpectRefused(
      [&](Plan& plan) {
        for (std::uint32_t i = 0; i < 6; ++i) LoadOf(plan, i).device_offset = i * 512;
      },
      "overlaps");
}

TEST_F(CheckPlanTest, OffsetAboveTheCapacity_IsRefused) {
  ExpectRefused([&](Plan& plan) { LoadOf(plan, 11).device_offset = 5 * 1024; },
                "past the capacity");
}

TEST_F(CheckPlanTest, OneByteAboveTheCapacity_IsRefused) {
  ExpectRefused(
      [](Plan& plan) {
        plan.options.alignment_bytes = 1;
        Load* highest = nullptr;
        for (Step& step : plan.steps) {
          for (Load& load : step.loads) {
            if (highest == nullptr || load.device_offset > highest->device_offset) highest = &load;
          }
        }
        highest->device_offset += 1;
      },
      "past the capacity");
}

TEST_F(CheckPlanTest, OffsetThatWouldOverflow_IsRefused) {
  ExpectRefused([&](Plan& plan) { LoadOf(plan, 3).device_offset = UINT64_MAX - 511; },
                "outside the arena");
}

TEST_F(CheckPlanTest, OffsetNotAligned_IsRefused) {
  ExpectRefused([&](Plan& plan) { LoadOf(plan, 3).device_offset += 1; }, "not aligned");
}

TEST_F(CheckPlanTest, LoadMissing_IsNotResident) {
  ExpectRefused([&](Plan& plan) { plan.steps[0].loads.clear(); }, "not resident");
}

TEST_F(CheckPlanTest, LoadTwice_IsRefused) {
  ExpectRefused([&](Plan& plan) { plan.steps[0].loads.push_back(plan.steps[0].loads[0]); },
                "twice");
}

TEST_F(CheckPlanTest, LoadOfUnknownChunk_IsRefused) {
  ExpectRefused([&](Plan& plan) { LoadOf(plan, 3).chunk = 12; }, "does not exist");
}

TEST_F(CheckPlanTest, DeadlineAfterTheUse_IsRefused) {
  ExpectRefused([&](Plan& plan) { LoadOf(plan, 3).deadline_moment += 1; },
                "before its load is due");
}

TEST_F(CheckPlanTest, DeadlineBeyondTheIteration_IsRefused) {
  ExpectRefused([&](Plan& plan) { LoadOf(plan, 3).deadline_moment = 24; }, "is due at");
}

TEST_F(CheckPlanTest, DropOfWhatIsStillUsed_IsRefused) {
  // The top turn uses chunk 11, at moments 11 and 12.
  ExpectRefused(
      [](Plan& plan) {
        plan.steps[11].drops.push_back({.chunk = 11, .becomes_gradient = false, .free_moment = 12});
      },
      "chunk 11 is not resident at moment 12");
}

TEST_F(CheckPlanTest, DropMissing_IsRefused) {
  ExpectRefused([](Plan& plan) { plan.steps[23].drops.clear(); }, "became a gradient");
}

TEST_F(CheckPlanTest, CleanDropMissing_IsRefused) {
  ExpectRefused([](Plan& plan) { plan.steps[0].drops.clear(); }, "overlaps");
}

TEST_F(CheckPlanTest, GradientDroppedAsWeight_IsRefused) {
  ExpectRefused([](Plan& plan) { plan.steps[20].drops[0].becomes_gradient = false; }, "wrong kind");
}

TEST_F(CheckPlanTest, GradientThatOutlivesTheIteration_IsRefused) {
  ExpectRefused([](Plan& plan) { plan.steps[23].drops[0].free_moment = 1; },
                "leaves after the optimizer");
}

TEST_F(CheckPlanTest, DropOfAbsentChunk_IsRefused) {
  ExpectRefused(
      [](Plan& plan) { plan.steps[23].drops.push_back({.chunk = 11, .free_moment = 24}); },
      "but not resident");
}

TEST_F(CheckPlanTest, StaleWeightOverTheBoundary_IsRefused) {
  ExpectRefused(
      [](Plan& plan) {
        Load load = plan.steps[0].loads[0];
        plan.steps[0].loads.erase(plan.steps[0].loads.begin());
        load.deadline_moment = 0;
        plan.steps[23].loads.push_back(load);
      },
      "");
}

TEST_F(CheckPlanTest, ResidentAtStartButStale_IsRefused) {
  ExpectRefused([](Plan& plan) { plan.resident_at_start.push_back({.chunk = 5}); }, "stale");
}

TEST_F(CheckPlanTest, WrongBytes_AreRefused) {
  ExpectRefused([](Plan& plan) { plan.h2d_bytes += 1; }, "states");
  ExpectRefused([](Plan& plan) { plan.d2h_bytes += 1; }, "states");
  ExpectRefused([](Plan& plan) { plan.lower_bound_bytes = plan.h2d_bytes + 1; }, "lower bound");
}

TEST_F(CheckPlanTest, ResidenciesThatDiffer_AreRefused) {
  ExpectRefused([](Plan& plan) { plan.residencies.pop_back(); }, "differ");
  ExpectRefused([](Plan& plan) { plan.residencies[3].device_offset += 512; }, "differ");
  ExpectRefused([](Plan& plan) { std::swap(plan.residencies[3].begin, plan.residencies[3].end); },
                "out of order");
}

TEST_F(CheckPlanTest, AnotherTrace_IsRefused) {
  trace_.moments[3].workspace_bytes = 0;
  ExpectRefused([](Plan&) {}, "another trace");
}

TEST_F(CheckPlanTest, MissingSteps_AreRefused) {
  ExpectRefused([](Plan& plan) { plan.steps.pop_back(); }, "steps");
}

TEST_F(CheckPlanTest, AlignmentZero_IsRefused) {
  ExpectRefused([](Plan& plan) { plan.options.alignment_bytes = 0; }, "alignment");
}

// The first iteration looks right, but leaves a gradient where the second loads.
TEST(CheckPlan, GradientInTheWayOfTheNextIteration_IsRefused) {
  const Trace trace = ChainTrace(3, 1024, 2, 2, /*trained=*/true);
  PlannerOptions options = TestOptions();
  options.weights_change_between_iterations = false;
  absl::StatusOr<Plan> plan = MakePlan(trace, options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_TRUE(CheckPlan(trace, *plan).ok());
  ASSERT_EQ(plan->steps[5].drops.size(), 1u);
  ASSERT_TRUE(plan->steps[5].drops[0].becomes_gradient);
  // A moment of the next iteration, which uses the chunk then.
  plan->steps[5].drops[0].free_moment = 2;
  EXPECT_THAT(std::string(CheckPlan(trace, *plan).message()), HasSubstr("at moment 6"));
}

TEST(CheckPlan, FrozenChunkElsewhereAtTheEnd_IsRefused) {
  Trace trace = ChainTrace(4, 1, 2, 2, /*trained=*/false);
  PlannerOptions options = TestOptions();
  options.weights_change_between_iterations = false;
  absl::StatusOr<Plan> plan = MakePlan(trace, options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_TRUE(CheckPlan(trace, *plan).ok()) << CheckPlan(trace, *plan);
  ASSERT_FALSE(plan->resident_at_start.empty());
  plan->resident_at_start.pop_back();
  EXPECT_FALSE(CheckPlan(trace, *plan).ok());
}

}  // namespace
}  // namespace geminid::planner
