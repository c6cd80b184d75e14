#include "daemon/planner/hierarchy/disk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/daemon/planner/hierarchy/problems.h"

namespace geminid::planner {
namespace {

HierarchyProblem OnDisk(std::uint64_t host_bytes) {
  HierarchyProblem problem = Chain({.layers = 8}, 40 * kMiB);
  problem.machine.host_bytes = host_bytes;
  problem.machine.disk_read_bytes_per_second = 5e9;
  problem.machine.disk_write_bytes_per_second = 3e9;
  problem.machine.disk_bytes = kGiB;
  return problem;
}

HierarchyPlan Make(const HierarchyProblem& problem) {
  absl::StatusOr<HierarchyPlan> plan = MakeHierarchyPlan(problem);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *std::move(plan) : HierarchyPlan();
}

HierarchyPlan AllHostPlan(const HierarchyProblem& problem) {
  absl::StatusOr<HierarchyPlan> plan = EvaluateDecisions(problem, AllHost(problem));
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *std::move(plan) : HierarchyPlan();
}

TEST(Disk, HostLargeEnough_IsNotUsed) {
  const HierarchyPlan plan = AllHostPlan(OnDisk(200 * kMiB));
  ASSERT_TRUE(plan.fits);
  EXPECT_FALSE(plan.disk.used);
  EXPECT_EQ(plan.traffic.disk_read + plan.traffic.disk_written, 0u);
}

TEST(Disk, HostTooSmall_CachesWhatFitsAndMovesTheRestOncePerStep) {
  const HierarchyProblem problem = OnDisk(100 * kMiB);
  const HierarchyPlan plan = AllHostPlan(problem);
  ASSERT_TRUE(plan.fits);
  ASSERT_TRUE(plan.disk.used);
  EXPECT_TRUE(CheckPlan(plan.disk.trace, plan.disk.plan).ok());
  EXPECT_LE(plan.tier(Tier::kHost).peak, 100 * kMiB);
  // The host needs 8 x (12 + 2) MiB, a spare of 12 and three write buffers of 10: 54 MiB too much.
  EXPECT_GE(plan.disk.disk_bytes, (8 * 14 + 12 + 30 - 100) * kMiB);
  EXPECT_LE(plan.disk.disk_bytes, 8 * 12 * kMiB);
  // All objects on disk change once per step.
  EXPECT_EQ(plan.traffic.disk_written, plan.disk.disk_bytes);
  EXPECT_GE(plan.traffic.disk_read, plan.traffic.disk_written);
  EXPECT_EQ(plan.traffic.disk_read, plan.disk.plan.h2d_bytes);
  EXPECT_GT(plan.seconds.step, AllHostPlan(OnDisk(kGiB)).seconds.step);
}

// Updates change 8 x 12 MiB, in objects of 2 and 10 MiB. The plan holds whole objects, and reads
// weights again for the device. Another plan need not, and the bound counts neither.
TEST(Disk, StepLowerBound_CountsOnlyWhatNoPlanCanHold) {
  HierarchyProblem problem = OnDisk(101 * kMiB);
  problem.machine.disk_read_bytes_per_second = 1e6;  // the bottleneck
  problem.machine.disk_write_bytes_per_second = 1e9;
  const HierarchyPlan plan = AllHostPlan(problem);
  ASSERT_TRUE(plan.disk.used);
  const std::uint64_t least = 8 * 12 * kMiB - plan.disk.cache_bytes;
  EXPECT_EQ(plan.disk.least_read_bytes, least);
  EXPECT_EQ(plan.disk.least_written_bytes, least);
  EXPECT_GT(plan.traffic.disk_read, least);
  EXPECT_DOUBLE_EQ(plan.step_lower_bound_seconds, static_cast<double>(least) / 1e6);
  EXPECT_LE(plan.step_lower_bound_seconds, plan.seconds.step);
}

// If the planner takes a faster plan for less memory, the bounds are still those of all the memory.
TEST(Disk, AnyHostMemory_PlanIsBoundedByAllOfIt) {
  for (std::uint64_t host = 76; host <= 120; host += 4) {
    const HierarchyPlan plan = AllHostPlan(OnDisk(host * kMiB));
    ASSERT_TRUE(plan.disk.used) << host;
    EXPECT_EQ(plan.disk.trace.arena_bytes, host * kMiB);
    const absl::Status valid = CheckPlan(plan.disk.trace, plan.disk.plan);
    EXPECT_TRUE(valid.ok()) << host << ": " << valid;
    EXPECT_LE(plan.disk.least_read_bytes, plan.disk.plan.lower_bound_bytes) << host;
  }
}

TEST(Disk, Moments_FollowTheDevicePlanAndUpdateEachChunkOnce) {
  const HierarchyPlan plan = AllHostPlan(OnDisk(100 * kMiB));
  ASSERT_TRUE(plan.disk.used);
  std::vector<int> updates(8, 0);
  std::uint32_t next = 0;
  for (std::size_t t = 0; t < plan.disk.moments.size(); ++t) {
    const DiskMoment& moment = plan.disk.moments[t];
    const std::vector<Use>& uses = plan.disk.trace.moments[t].uses;
    if (moment.is_update) {
      ++updates[moment.index];
      ASSERT_EQ(uses.size(), 2u);  // weight and state of the chunk
      for (const Use& use : uses) EXPECT_EQ(plan.disk.objects[use.chunk].chunk, moment.index);
      continue;
    }
    EXPECT_EQ(moment.index, next++);
    const std::vector<Load>& loads = plan.device_plan.steps[moment.index].loads;
    ASSERT_EQ(uses.size(), loads.size());
    for (std::size_t i = 0; i < loads.size(); ++i) {
      EXPECT_EQ(plan.disk.objects[uses[i].chunk].chunk, loads[i].chunk);
      EXPECT_EQ(updates[loads[i].chunk], 1) << "loaded before it was updated";
    }
  }
  EXPECT_EQ(updates, std::vector<int>(8, 1));
  EXPECT_EQ(next, plan.device_trace.moments.size());
}

TEST(Disk, MoreHostMemory_IsNotSlowerAndEndsWithoutTheDisk) {
  double step = 1e9;
  for (std::uint64_t host = 76; host <= 140; host += 8) {
    const HierarchyPlan plan = AllHostPlan(OnDisk(host * kMiB));
    ASSERT_TRUE(plan.fits) << host;
    // The disk plan is a heuristic where sizes differ, so the step may become slightly longer.
    EXPECT_LE(plan.seconds.step, step * 1.01) << host;
    EXPECT_EQ(plan.disk.used, host < 8 * 14 + 12);
    step = std::min(step, plan.seconds.step);
  }
}

TEST(Disk, HostTooSmallForTheWorkingSet_LacksHostAndThatMuchHelps) {
  HierarchyProblem problem = OnDisk(40 * kMiB);
  const HierarchyPlan plan = AllHostPlan(problem);
  ASSERT_FALSE(plan.fits);
  ASSERT_EQ(plan.remedies.size(), 1u);
  EXPECT_EQ(plan.remedies[0].tier, Tier::kHost);
  problem.machine.host_bytes += plan.remedies[0].more_bytes - 1;
  EXPECT_FALSE(AllHostPlan(problem).fits);
  problem.machine.host_bytes += 1;
  EXPECT_TRUE(AllHostPlan(problem).fits);
}

TEST(Disk, NoDiskAndTooLittleHost_OffersMoreHostOrADiskAndEitherHelps) {
  HierarchyProblem problem = Chain({.layers = 8}, 20 * kMiB);
  problem.machine.host_bytes = 100 * kMiB;
  const HierarchyPlan plan = Make(problem);
  ASSERT_FALSE(plan.fits);
  ASSERT_EQ(plan.remedies.size(), 2u);
  EXPECT_EQ(plan.remedies[0].tier, Tier::kHost);
  EXPECT_EQ(plan.remedies[1].tier, Tier::kDisk);
  HierarchyProblem more = problem;
  more.machine.host_bytes += plan.remedies[0].more_bytes;
  EXPECT_TRUE(Make(more).fits);
  HierarchyProblem with_disk = problem;
  with_disk.machine.disk_read_bytes_per_second = 3e9;
  with_disk.machine.disk_write_bytes_per_second = 2e9;
  with_disk.machine.disk_bytes = plan.remedies[1].more_bytes;
  const HierarchyPlan fits = Make(with_disk);
  EXPECT_TRUE(fits.fits);
  EXPECT_TRUE(fits.disk.used);
}

TEST(Disk, HostTooSmallForActivations_RecomputesThem) {
  // Offloading the activations would need 64 MiB more of host memory than the cache leaves.
  HierarchyProblem problem = Chain({.layers = 32, .parameters = 1 << 18}, 32 * kMiB);
  problem.machine.host_bytes = 60 * kMiB;
  problem.machine.disk_read_bytes_per_second = 5e9;
  problem.machine.disk_write_bytes_per_second = 3e9;
  problem.machine.disk_bytes = kGiB;
  const HierarchyPlan plan = Make(problem);
  ASSERT_TRUE(plan.fits);
  EXPECT_TRUE(plan.disk.used);
  EXPECT_GT(std::count(plan.decisions.activations.begin(), plan.decisions.activations.end(),
                       ActivationPlace::kRecompute),
            0);
}

TEST(Disk, HostShortOfDeviceStateToo_PrefersTheDevice) {
  // Half of the state fits on the device. State that does not fit on the host goes there, not to
  // disk.
  HierarchyProblem problem = Chain({.layers = 8}, 120 * kMiB);
  problem.machine.host_bytes = 90 * kMiB;
  const HierarchyPlan plan = Make(problem);
  ASSERT_TRUE(plan.fits);
  EXPECT_FALSE(plan.disk.used);
  EXPECT_LE(plan.tier(Tier::kHost).peak, 90 * kMiB);
}

TEST(DiskLife, SeventyBillionParametersOnEightDrives_WearsAtRatedSpeedIn37StepsADay) {
  // 12 B x 70e9 = 840 GB a step. Eight drives of 3.84 TB are rated for one write a day for 5 years.
  HierarchyPlan plan;
  plan.disk.used = true;
  plan.traffic.disk_written = 840'000'000'000;
  constexpr double kPerDay = 8 * 3.84e12;
  constexpr double kStepsPerDay = kPerDay / 840e9;
  EXPECT_NEAR(kStepsPerDay, 36.6, 0.05);
  plan.seconds.step = 86400 / kStepsPerDay;
  Machine machine = PlainMachine();
  machine.disk_endurance_bytes = kPerDay * 365 * 5;
  RateDiskLife(machine, plan);
  EXPECT_NEAR(plan.disk.life_days, 365 * 5, 1e-6);
  EXPECT_FALSE(plan.disk.wears_out_soon);
  // At the 26 GB/s that the drives allow, 32 s a step, they last about half a month.
  plan.seconds.step = 840 / 26.0;
  RateDiskLife(machine, plan);
  EXPECT_NEAR(plan.disk.life_days, 365 * 5 * kStepsPerDay / (86400 / plan.seconds.step), 1e-6);
  EXPECT_LT(plan.disk.life_days, 30);
  EXPECT_TRUE(plan.disk.wears_out_soon);
}

TEST(DiskLife, AllRanksOfTheNode_WearTheSameDisks) {
  HierarchyPlan plan;
  plan.disk.used = true;
  plan.traffic.disk_written = 1'000'000'000;
  plan.seconds.step = 1;
  Machine machine = PlainMachine();
  machine.disk_endurance_bytes = 1e15;
  RateDiskLife(machine, plan);
  const double alone = plan.disk.life_days;
  machine.ranks_on_node = 8;
  RateDiskLife(machine, plan);
  EXPECT_DOUBLE_EQ(plan.disk.life_days, alone / 8);
}

}  // namespace
}  // namespace geminid::planner
