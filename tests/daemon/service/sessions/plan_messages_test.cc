#include "daemon/service/sessions/plan_messages.h"

#include "gtest/gtest.h"
#include "proto/messages/trace_messages.h"
#include "tests/daemon/service/planned.h"

namespace geminid::service {
namespace {

TEST(TraceFromMessage, LinkWithoutTheLaterFields_IsALinkOfItsOwn) {
  v1::Trace message;
  message.mutable_link()->set_host_to_device_bytes_per_second(3);
  message.mutable_link()->set_device_to_host_bytes_per_second(2);
  const planner::LinkModel link = messages::TraceFromMessage<planner::Trace>(message).link;
  EXPECT_EQ(link.both_directions_share, 1);
  EXPECT_EQ(link.uplink_bytes_per_second, 0);
  EXPECT_EQ(link.ranks_per_uplink, 1u);
}

// Converts both ways by name, because the conversion itself uses the order of the fields.
TEST(TraceFromMessage, EveryField_KeepsItsName) {
  v1::Trace message;
  message.set_arena_bytes(1);
  v1::TraceChunk* chunk = message.add_chunks();
  chunk->set_chunk(2);
  chunk->set_device_bytes(3);
  chunk->set_transfer_bytes(4);
  chunk->set_gradient_bytes(5);
  chunk->set_frozen(true);
  v1::TraceMoment* moment = message.add_moments();
  moment->set_workspace_bytes(6);
  moment->set_compute_seconds(7);
  v1::TraceUse* use = moment->add_uses();
  use->set_index(8);
  use->set_invalidates(true);
  v1::LinkModel* link = message.mutable_link();
  link->set_host_to_device_bytes_per_second(9);
  link->set_device_to_host_bytes_per_second(10);
  link->set_latency_seconds(11);
  link->set_both_directions_share(0.75);
  link->set_uplink_bytes_per_second(12);
  link->set_ranks_per_uplink(13);

  const auto trace = messages::TraceFromMessage<planner::Trace>(message);
  EXPECT_EQ(trace.arena_bytes, 1u);
  ASSERT_EQ(trace.chunks.size(), 1u);
  EXPECT_EQ(trace.chunks[0].id, 2u);
  EXPECT_EQ(trace.chunks[0].size_bytes, 3u);
  EXPECT_EQ(trace.chunks[0].transfer_bytes, 4u);
  EXPECT_EQ(trace.chunks[0].gradient_bytes, 5u);
  EXPECT_TRUE(trace.chunks[0].frozen);
  ASSERT_EQ(trace.moments.size(), 1u);
  EXPECT_EQ(trace.moments[0].workspace_bytes, 6u);
  EXPECT_EQ(trace.moments[0].compute_seconds, 7);
  ASSERT_EQ(trace.moments[0].uses.size(), 1u);
  EXPECT_EQ(trace.moments[0].uses[0].chunk, 8u);
  EXPECT_TRUE(trace.moments[0].uses[0].invalidates);
  EXPECT_EQ(trace.link.h2d_bytes_per_second, 9);
  EXPECT_EQ(trace.link.d2h_bytes_per_second, 10);
  EXPECT_EQ(trace.link.latency_seconds, 11);
  EXPECT_EQ(trace.link.both_directions_share, 0.75);
  EXPECT_EQ(trace.link.uplink_bytes_per_second, 12);
  EXPECT_EQ(trace.link.ranks_per_uplink, 13u);
  EXPECT_EQ(messages::TraceToMessage(trace).SerializeAsString(), message.SerializeAsString());
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

TEST(PlanFromMessage, OfAPlan_MakesTheSameMessageAgain) {
  const planner::Trace trace = ChainTrace(5, uint64_t{3} << 20);
  const v1::Plan message = Planned(trace).plan;
  ASSERT_GT(message.stalls_size(), 0);
  v1::Plan again = ToMessage(trace, PlanFromMessage(message));
  // The hash covers the whole plan, with its options and residencies.
  again.set_plan_hash(message.plan_hash());
  again.set_explanation(message.explanation());
  EXPECT_EQ(again.SerializeAsString(), message.SerializeAsString());
}

}  // namespace
}  // namespace geminid::service
