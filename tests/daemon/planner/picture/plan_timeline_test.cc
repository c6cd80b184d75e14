#include "daemon/planner/picture/plan_timeline.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "daemon/planner/make_plan.h"
#include "gtest/gtest.h"
#include "tests/daemon/planner/traces.h"

namespace geminid::planner {
namespace {

// For each moment: by offset, the chunk that lies there, and how the extent is occupied.
using Cell = std::pair<ChunkIndex, Occupant>;
using Arena = std::vector<std::map<std::uint64_t, Cell>>;

// Built from the planner's residencies, which a timeline does not use.
Arena ArenaOf(const Trace& trace, const Plan& plan) {
  const auto n = static_cast<std::int64_t>(trace.moments.size());
  Arena arena(trace.moments.size());
  for (const Residency& r : plan.residencies) {
    for (std::int64_t m = r.begin; m < r.end; ++m) {
      Occupant occupant = Occupant::kWeights;
      if (!r.permanent && m < r.first_use) occupant = Occupant::kArriving;
      if (!r.permanent && m > r.last_use) occupant = Occupant::kLeaving;
      const auto moment = static_cast<std::size_t>((m + n) % n);
      EXPECT_TRUE(arena[moment].emplace(r.device_offset, Cell(r.chunk, occupant)).second);
    }
  }
  return arena;
}

Arena ArenaOf(const PlanTimeline& timeline) {
  Arena arena(timeline.rows.size());
  for (const StaySpan& piece : timeline.pieces) {
    for (Moment m = piece.begin; m < piece.end; ++m) {
      EXPECT_TRUE(arena[m].emplace(piece.device_offset, Cell(piece.chunk, piece.occupant)).second);
    }
  }
  return arena;
}

struct Planned {
  Trace trace;
  Plan plan;
};

std::vector<Planned> SomePlans() {
  std::vector<Planned> plans;
  std::mt19937_64 random(32);
  for (int i = 0; i < 1000; ++i) {
    RandomShape shape;
    shape.num_chunks = static_cast<int>(Draw(random, 1, 8));
    shape.num_moments = static_cast<int>(Draw(random, 1, 16));
    shape.max_size_bytes = Draw(random, 1, 5);
    shape.invalidate = i % 2 == 0;
    shape.freeze = i % 3 == 0;
    shape.vary_transfer = i % 5 == 0;
    PlannerOptions options = TestOptions();
    options.weights_change_between_iterations = i % 4 != 0;
    options.drain_moments = static_cast<std::uint32_t>(Draw(random, 0, 3));
    Trace trace = RandomTrace(shape, random);
    absl::StatusOr<Plan> plan = MakePlan(trace, options);
    if (!plan.ok()) continue;  // the drains do not fit
    EXPECT_TRUE(CheckPlan(trace, *plan).ok());
    plans.push_back({std::move(trace), *std::move(plan)});
  }
  EXPECT_GT(plans.size(), 600u);
  return plans;
}

TEST(TimelineOf, AnyPlan_HasTheChunksWhereTheResidenciesSay) {
  size_t leaving = 0, arriving_over_the_end = 0;
  for (const Planned& planned : SomePlans()) {
    const PlanTimeline timeline = TimelineOf(planned.trace, planned.plan);
    ASSERT_EQ(ArenaOf(timeline), ArenaOf(planned.trace, planned.plan));
    for (const StaySpan& piece : timeline.pieces) {
      leaving += piece.occupant == Occupant::kLeaving ? 1 : 0;
      arriving_over_the_end += piece.occupant == Occupant::kArriving && piece.begin == 0 ? 1 : 0;
    }
  }
  EXPECT_GT(leaving, 100u);
  EXPECT_GT(arriving_over_the_end, 10u);
}

TEST(TimelineOf, AnyPlan_HasTheBytesOfEachMoment) {
  for (const Planned& planned : SomePlans()) {
    const PlanTimeline timeline = TimelineOf(planned.trace, planned.plan);
    const Arena arena = ArenaOf(planned.trace, planned.plan);
    std::uint64_t up = 0, down = 0;
    double stalls = 0;
    for (std::size_t t = 0; t < timeline.rows.size(); ++t) {
      const TimelineRow& row = timeline.rows[t];
      std::array<std::uint64_t, kOccupants> bytes{};
      bytes[static_cast<std::size_t>(Occupant::kActivations)] =
          planned.trace.moments[t].workspace_bytes;
      for (const auto& [offset, cell] : arena[t]) {
        bytes[static_cast<std::size_t>(cell.second)] += planned.trace.chunks[cell.first].size_bytes;
      }
      ASSERT_EQ(row.bytes, bytes) << t;
      EXPECT_LE(row.TotalBytes(), planned.trace.arena_bytes);
      EXPECT_EQ(row.first, t);
      EXPECT_EQ(row.last, t);
      up += row.up_bytes;
      down += row.down_bytes;
      stalls += row.stall_seconds;
    }
    EXPECT_EQ(up, planned.plan.h2d_bytes);
    EXPECT_EQ(down, planned.plan.d2h_bytes);
    EXPECT_NEAR(stalls, planned.plan.predicted_step_seconds - planned.plan.compute_seconds, 1e-9);
  }
}

TEST(TimelineOf, PlanOfTwoChunksInRoomForOne_IsAsWorkedOutByHand) {
  // Forward uses a, b, and backward b, a, of one byte each in an arena of two. Drains last one
  // moment.
  const Trace trace = ChainTrace(2, 1, 2, 2, /*trained=*/true);
  PlannerOptions options = TestOptions();
  const absl::StatusOr<Plan> plan = MakePlan(trace, options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const PlanTimeline timeline = TimelineOf(trace, *plan);
  ASSERT_EQ(timeline.rows.size(), 4u);
  EXPECT_EQ(timeline.arena_bytes, 2u);
  const auto leaving = [&](Moment t) {
    return timeline.rows[t].bytes[static_cast<std::size_t>(Occupant::kLeaving)];
  };
  EXPECT_EQ(leaving(1), 0u);
  EXPECT_EQ(leaving(3), 1u) << "b, after its backward";
  EXPECT_GT(timeline.rows[2].down_bytes, 0u);
  EXPECT_GT(timeline.rows[3].down_bytes, 0u);
}

// CheckPlan would refuse this plan. Its timeline is wrong, but does no harm.
TEST(TimelineOf, PlanThatMakesNoSense_IsShownSomehow) {
  const Trace trace = ChainTrace(2, 1, 2, 2, true);
  Plan plan;
  plan.steps.resize(7);
  plan.steps[0].drops = {{.chunk = 1, .becomes_gradient = true, .free_moment = 2}};
  plan.steps[1].loads = {{.chunk = 0, .device_offset = 9, .deadline_moment = 0},
                         {.chunk = 0, .device_offset = 3, .deadline_moment = 3}};
  plan.resident_at_start = {{.chunk = 0, .device_offset = 1u << 20}};
  plan.stalls = {{.moment = 4, .seconds = 1}};
  const PlanTimeline timeline = TimelineOf(trace, plan);
  EXPECT_EQ(timeline.rows.size(), 4u);
  EXPECT_EQ(timeline.rows[3].stall_seconds, 1);
  for (const StaySpan& piece : timeline.pieces) {
    EXPECT_LT(piece.begin, piece.end);
    EXPECT_LE(piece.end, 4u);
  }
}

TEST(Grouped, Rows_KeepTheirSumsAndTheFullestMoment) {
  std::vector<TimelineRow> rows;
  for (Moment t = 0; t < 100; ++t) {
    rows.push_back({.first = t,
                    .last = t,
                    .bytes = {t % 7, t % 5, 0, 1},
                    .up_bytes = t,
                    .down_bytes = 2 * t,
                    .stall_seconds = 1});
  }
  EXPECT_EQ(Grouped(rows, 100), rows);
  for (const std::size_t most : {1u, 3u, 7u, 64u, 99u}) {
    const std::vector<TimelineRow> groups = Grouped(rows, most);
    EXPECT_LE(groups.size(), most);
    std::uint64_t up = 0, down = 0;
    double stalls = 0;
    Moment next = 0;
    for (const TimelineRow& group : groups) {
      EXPECT_EQ(group.first, next);
      next = group.last + 1;
      std::uint64_t fullest = 0;
      for (Moment t = group.first; t <= group.last; ++t) {
        fullest = std::max(fullest, rows[t].TotalBytes());
      }
      EXPECT_EQ(group.TotalBytes(), fullest);
      up += group.up_bytes;
      down += group.down_bytes;
      stalls += group.stall_seconds;
    }
    EXPECT_EQ(next, 100u);
    EXPECT_EQ(up, 4950u);
    EXPECT_EQ(down, 9900u);
    EXPECT_EQ(stalls, 100);
  }
  EXPECT_TRUE(Grouped({}, 3).empty());
}

}  // namespace
}  // namespace geminid::planner
