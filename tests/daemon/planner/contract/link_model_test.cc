#include "daemon/planner/contract/link_model.h"

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"

namespace geminid::planner {
namespace {

constexpr LinkSimulation::Direction kUp = LinkSimulation::kUp;
constexpr LinkSimulation::Direction kDown = LinkSimulation::kDown;

LinkModel Link(double share) {
  return {.h2d_bytes_per_second = 10,
          .d2h_bytes_per_second = 5,
          .latency_seconds = 0,
          .both_directions_share = share};
}

TEST(LinkSimulation, OneDirection_ServesOneAfterAnother) {
  LinkModel model = Link(1);
  model.latency_seconds = 2;
  LinkSimulation link(model);
  EXPECT_EQ(link.Send(kUp, 10), 0u);
  EXPECT_EQ(link.Send(kUp, 30), 1u);
  EXPECT_DOUBLE_EQ(link.Finish(kUp, 1), 2 + 1 + 2 + 3);
  EXPECT_DOUBLE_EQ(link.Finish(kUp, 0), 3);
  EXPECT_DOUBLE_EQ(link.now(), 8);
}

TEST(LinkSimulation, IndependentDirections_DoNotDelayEachOther) {
  LinkSimulation link(Link(1));
  link.Send(kUp, 100);
  link.Send(kDown, 100);
  EXPECT_DOUBLE_EQ(link.Finish(kUp, 0), 10);
  EXPECT_DOUBLE_EQ(link.Finish(kDown, 0), 20);
}

TEST(LinkSimulation, OneSharedChannel_TakesTheSum) {
  LinkSimulation link(Link(0.5));
  link.Send(kUp, 100);    // 10 s alone
  link.Send(kDown, 100);  // 20 s alone
  EXPECT_DOUBLE_EQ(link.Finish(kUp, 0), 20);
  EXPECT_DOUBLE_EQ(link.Finish(kDown, 0), 30);
}

TEST(LinkSimulation, TransferThatStartsLater_SlowsOnlyTheRest) {
  LinkSimulation link(Link(0.8));
  link.Send(kUp, 100);
  link.AdvanceTo(6);
  link.Send(kDown, 40);  // 8 s alone; the load needs 4 s more, which now take 5
  EXPECT_DOUBLE_EQ(link.Finish(kUp, 0), 11);
  EXPECT_DOUBLE_EQ(link.Finish(kDown, 0), 11 + 4);
}

TEST(LinkSimulation, LatencyOfOneDirection_DoesNotSlowTheOther) {
  LinkModel model = Link(0.5);
  model.latency_seconds = 3;
  LinkSimulation link(model);
  link.Send(kUp, 10);
  link.AdvanceTo(2);
  link.Send(kDown, 5);  // flows from 5 on; the load was done at 4
  EXPECT_DOUBLE_EQ(link.Finish(kUp, 0), 4);
  EXPECT_DOUBLE_EQ(link.Finish(kDown, 0), 6);
}

TEST(UpBytesPerSecond, SharedUplink_IsAnEqualShareIfThatIsLess) {
  LinkModel model = Link(1);
  model.uplink_bytes_per_second = 24;
  model.ranks_per_uplink = 4;
  EXPECT_DOUBLE_EQ(UpBytesPerSecond(model), 6);
  EXPECT_DOUBLE_EQ(DownBytesPerSecond(model), 5);
  model.ranks_per_uplink = 2;
  EXPECT_DOUBLE_EQ(UpBytesPerSecond(model), 10);
}

TEST(BothDirectionsSeconds, AnyShare_IsWhatTheSimulationTakesFromAnEvenStart) {
  for (const double share : {0.5, 0.6, 0.8, 1.0}) {
    for (const double up : {0.0, 3.0, 10.0, 25.0}) {
      LinkSimulation link(Link(share));
      link.Send(kUp, static_cast<std::uint64_t>(up * 10));
      link.Send(kDown, 50);
      const double both = std::max(link.Finish(kUp, 0), link.Finish(kDown, 0));
      EXPECT_NEAR(BothDirectionsSeconds(Link(share), up, 10), both, 1e-12) << share << " " << up;
    }
  }
}

}  // namespace
}  // namespace geminid::planner
