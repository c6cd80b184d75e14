#include "daemon/service/plan_messages.h"

#include "gtest/gtest.h"

namespace geminid::service {
namespace {

TEST(FromMessage, LinkWithoutTheLaterFields_IsALinkOfItsOwn) {
  v1::Trace message;
  message.mutable_link()->set_host_to_device_bytes_per_second(3);
  message.mutable_link()->set_device_to_host_bytes_per_second(2);
  message.mutable_link()->set_latency_seconds(1);
  const planner::LinkModel link = FromMessage(message).link;
  EXPECT_EQ(link.h2d_bytes_per_second, 3);
  EXPECT_EQ(link.d2h_bytes_per_second, 2);
  EXPECT_EQ(link.latency_seconds, 1);
  EXPECT_EQ(link.both_directions_share, 1);
  EXPECT_EQ(link.uplink_bytes_per_second, 0);
  EXPECT_EQ(link.ranks_per_uplink, 1u);
}

TEST(FromMessage, SharedLink_KeepsEachField) {
  v1::Trace message;
  message.mutable_link()->set_both_directions_share(0.75);
  message.mutable_link()->set_uplink_bytes_per_second(5e9);
  message.mutable_link()->set_ranks_per_uplink(4);
  const planner::LinkModel link = FromMessage(message).link;
  EXPECT_EQ(link.both_directions_share, 0.75);
  EXPECT_EQ(link.uplink_bytes_per_second, 5e9);
  EXPECT_EQ(link.ranks_per_uplink, 4u);
}

TEST(ToMessage, StepAndStalls_SayTheirBounds) {
  planner::Trace trace;
  trace.chunks.push_back({.id = 7, .size_bytes = 1});
  trace.moments.push_back({.uses = {{.chunk = 0}}});
  planner::Plan plan;
  plan.predicted_step_seconds = 3;
  plan.step_lower_bound_seconds = 2;
  plan.stalls.push_back({.moment = 0, .seconds = 1, .unavoidable_seconds = 0.5});
  const v1::Plan message = ToMessage(trace, plan);
  EXPECT_EQ(message.predicted_step_seconds(), 3);
  EXPECT_EQ(message.step_lower_bound_seconds(), 2);
  ASSERT_EQ(message.stalls_size(), 1);
  EXPECT_EQ(message.stalls(0).unavoidable_seconds(), 0.5);
}

}  // namespace
}  // namespace geminid::service
