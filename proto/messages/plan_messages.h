// What both sides check of a plan that they got as a message.
#ifndef GEMINID_PROTO_MESSAGES_PLAN_MESSAGES_H_
#define GEMINID_PROTO_MESSAGES_PLAN_MESSAGES_H_

#include <cstddef>

#include "geminid/v1/plan.pb.h"

namespace geminid::messages {

// That the plan names nothing that a trace of so many chunks and moments lacks: who uses it goes by
// its indices without further checks.
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

}  // namespace geminid::messages

#endif  // GEMINID_PROTO_MESSAGES_PLAN_MESSAGES_H_
