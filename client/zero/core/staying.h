// Weights that are gathered once between updates, in ZeRO's stages below the third: what plans must
// know of them. Pure.
#ifndef GEMINID_CLIENT_ZERO_CORE_STAYING_H_
#define GEMINID_CLIENT_ZERO_CORE_STAYING_H_

#include <cstddef>
#include <cstdint>

#include "geminid/plan.h"

namespace geminid::zero {

struct StayingWeights {
  size_t chunks = 0;  // the first ones; behind them come gradients
  // Those that a micro-batch does not use stay, too: others use them.
  bool unused_too = false;
};

// With all weights that stay in all of its moments. A plan for it, of weights that do not change
// between iterations, is one for the micro-batches after the first of a step, which alone waits for
// gathers.
Trace WithWhatStays(const Trace& trace, const StayingWeights& weights);

// Whether the plan moves none of them. It may, where places are short.
bool KeepsWhatStays(const Plan& plan, const StayingWeights& weights);

// What goes over this rank's link for it after an update.
uint64_t BytesGatheredOnce(const Trace& trace, const StayingWeights& weights);

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_CORE_STAYING_H_
