#ifndef GEMINID_DAEMON_PLANNER_HIERARCHY_ROUND_H_
#define GEMINID_DAEMON_PLANNER_HIERARCHY_ROUND_H_

#include <cstdint>
#include <vector>

#include "daemon/planner/hierarchy/price.h"

// Turns prices into decisions that fit.

namespace geminid::planner {

struct RoundOptions {
  // Streamed state needs staging on the device. Staging is set aside only if state may be streamed.
  bool allow_streamed = true;
  // Chunks whose state stays on the device if it fits at all, whatever the prices say. One entry
  // per chunk, or empty.
  std::vector<std::uint8_t> pinned = {};
  // Per moment, bytes that must stay free; or empty.
  std::vector<std::uint64_t> reserved = {};
};

struct RoundedDecisions {
  Decisions decisions;
  // The seconds of the decisions in the price model, with as many weights retained as fit. The
  // largest is an estimate of the step that needs no device plan.
  PricedSeconds seconds = {};
};

// Every item starts with the option that takes the least device memory. Then the items choose in
// the order of seconds saved per byte and moment, largest first. An item takes the option that
// costs least at the prices among the options that fit. Space is checked at every moment, not only
// at the moments of the segments. O((items + gaps) log moments).
// Windows of offloaded activations are longer than the price model assumes if the activations queue
// for the link. If the decisions therefore exceed the arena, the excess is reserved and they are
// rounded again, a few times.
RoundedDecisions Round(const PreparedProblem& prepared, const PriceModel& model,
                       const ResourcePrices& prices, const RoundOptions& options);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_HIERARCHY_ROUND_H_
