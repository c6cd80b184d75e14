#ifndef GEMINID_DAEMON_PLANNER_HIERARCHY_ROUND_H_
#define GEMINID_DAEMON_PLANNER_HIERARCHY_ROUND_H_

#include <cstdint>
#include <vector>

#include "daemon/planner/hierarchy/price.h"

// From prices to decisions that fit.

namespace geminid::planner {

struct RoundOptions {
  // Streamed state needs staging on the device; set aside only if it may be used.
  bool allow_streamed = true;
  // Chunks that stay on the device if they fit at all, whatever the prices say; one entry per
  // chunk, or empty.
  std::vector<std::uint8_t> pinned = {};
  // Per moment, room that must stay free, or empty.
  std::vector<std::uint64_t> reserved = {};
};

struct Rounded {
  Decisions decisions;
  // What they keep busy in the price model, with as many weights kept as the room allows. The
  // largest is an estimate of the step that needs no device plan.
  PricedSeconds seconds = {};
};

// Everything starts with the option that takes least of the device. Then, best seconds saved per
// byte and moment first, each item takes the option that costs least at the prices among those that
// there is room for. FreeBytes is that of every moment, not of the segments only.
// O((items + gaps) log moments).
// The windows of offloaded activations are longer when these queue for the link than the price
// model assumes. If the decisions therefore exceed the arena, the excess is reserved and they are
// rounded again, a few times.
Rounded Round(const Prepared& prepared, const PriceModel& model, const Prices& prices,
              const RoundOptions& options);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_HIERARCHY_ROUND_H_
