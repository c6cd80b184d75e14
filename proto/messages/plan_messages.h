// Reads plans from their message into plain values, and checks them for both sides. Only this file
// knows the indices, offsets and moments of a plan's message.
//
// The client's public types and the planner's differ, as those of a trace do (trace_messages.h).
// Both are aggregates; their first fields are those of the message, in its order.
#ifndef GEMINID_PROTO_MESSAGES_PLAN_MESSAGES_H_
#define GEMINID_PROTO_MESSAGES_PLAN_MESSAGES_H_

#include <cstddef>
#include <vector>

#include "geminid/v1/plan.pb.h"

namespace geminid::messages {

// Whether a plan names only chunks and moments that a trace of so many has. Users of the plan then
// follow its indices without further checks.
inline bool IsWithin(const v1::Plan& plan, size_t chunks, size_t moments) {
  if (static_cast<size_t>(plan.moments_size()) != moments) return false;
  for (const v1::PlannedMoment& moment : plan.moments()) {
    for (const v1::PlannedLoad& load : moment.loads()) {
      if (load.index() >= chunks || load.deadline_moment() >= moments) return false;
    }
    for (const v1::PlannedDrop& drop : moment.drops()) {
      if (drop.index() >= chunks || drop.free_moment() > moments) return false;
    }
  }
  for (const v1::PlannedPlacement& placement : plan.resident_at_start()) {
    if (placement.index() >= chunks) return false;
  }
  for (const v1::PlannedStall& stall : plan.stalls()) {
    if (stall.moment() > moments) return false;
  }
  return true;
}

// Reads the plan's moments into either side's type, which has `loads` and `drops`.
template <typename Moment>
void ReadMoments(const v1::Plan& plan, std::vector<Moment>* moments) {
  moments->reserve(static_cast<size_t>(plan.moments_size()));
  for (const v1::PlannedMoment& from : plan.moments()) {
    Moment& moment = moments->emplace_back();
    for (const v1::PlannedLoad& load : from.loads()) {
      moment.loads.push_back({load.index(), load.device_offset(), load.deadline_moment()});
    }
    for (const v1::PlannedDrop& drop : from.drops()) {
      moment.drops.push_back({drop.index(), drop.becomes_gradient(), drop.free_moment()});
    }
  }
}

template <typename Placement>
void ReadPlacements(const v1::Plan& plan, std::vector<Placement>* placements) {
  for (const v1::PlannedPlacement& placement : plan.resident_at_start()) {
    placements->push_back({placement.index(), placement.device_offset()});
  }
}

}  // namespace geminid::messages

#endif  // GEMINID_PROTO_MESSAGES_PLAN_MESSAGES_H_
