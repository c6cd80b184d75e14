// Weights that are gathered only once between updates, in ZeRO's stages 1 and 2, as plans must
// treat them. Pure.
#ifndef GEMINID_CLIENT_ZERO_CORE_STAYING_H_
#define GEMINID_CLIENT_ZERO_CORE_STAYING_H_

#include <cstddef>
#include <cstdint>

#include "geminid/plan.h"

namespace geminid::zero {

struct StayingWeights {
  size_t chunks = 0;  // the first ones of the trace; gradients follow them
  // True: weights that one micro-batch does not use stay too, because others use them.
  bool unused_too = false;
};

// The trace with all weights that stay in each of its moments. A plan for it assumes weights that
// do not change between iterations. It fits the micro-batches of a step after the first, since only
// the first one waits for gathers.
Trace WithWhatStays(const Trace& trace, const StayingWeights& weights);

// Whether the plan moves none of these weights. It may move them if places are short.
bool KeepsStayingWeights(const Plan& plan, const StayingWeights& weights);

// Bytes over this rank's link to gather these weights after an update.
uint64_t BytesGatheredOnce(const Trace& trace, const StayingWeights& weights);

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_CORE_STAYING_H_
