// Real plans, small enough to work out by hand.
#ifndef GEMINID_TESTS_DAEMON_SERVICE_PLANNED_H_
#define GEMINID_TESTS_DAEMON_SERVICE_PLANNED_H_

#include <cstdint>

#include "daemon/planner/make_plan.h"
#include "daemon/service/sessions/plan_messages.h"
#include "daemon/service/sessions/stored_plan.h"
#include "gtest/gtest.h"
#include "proto/messages/trace_messages.h"

namespace geminid::service {

// The plan of a trace.
inline StoredPlan::Contents Planned(const planner::Trace& trace,
                                    const planner::PlannerOptions& options = {}) {
  const absl::StatusOr<planner::Plan> plan = planner::MakePlan(trace, options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  if (!plan.ok()) return {};
  return {messages::TraceToMessage(trace), ToMessage(trace, *plan)};
}

// A forward pass over `chunks` of 1 MiB and a backward pass, with one chunk an operator, in an
// arena of `arena_bytes`. Backward makes gradients.
inline planner::Trace ChainTrace(uint32_t chunks, uint64_t arena_bytes) {
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  planner::Trace trace;
  trace.arena_bytes = arena_bytes;
  for (uint32_t c = 0; c < chunks; ++c) {
    trace.chunks.push_back(
        {.id = c, .size_bytes = kMiB, .transfer_bytes = kMiB, .gradient_bytes = kMiB});
    trace.moments.push_back({.uses = {{.chunk = c}}, .compute_seconds = 1e-3});
  }
  for (uint32_t c = chunks; c-- > 0;) {
    trace.moments.push_back({.uses = {{.chunk = c, .invalidates = true}}, .compute_seconds = 1e-3});
  }
  trace.link.h2d_bytes_per_second = 1e10;
  trace.link.d2h_bytes_per_second = 1e10;
  return trace;
}

inline StoredPlan::Contents PlannedChain(uint32_t chunks, uint64_t arena_bytes) {
  return Planned(ChainTrace(chunks, arena_bytes));
}

}  // namespace geminid::service

#endif  // GEMINID_TESTS_DAEMON_SERVICE_PLANNED_H_
