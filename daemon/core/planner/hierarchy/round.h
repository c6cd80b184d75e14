#ifndef GEMINID_DAEMON_CORE_PLANNER_HIERARCHY_ROUND_H_
#define GEMINID_DAEMON_CORE_PLANNER_HIERARCHY_ROUND_H_

#include <cstdint>
#include <vector>

#include "daemon/core/planner/hierarchy/price.h"

// From prices to decisions that fit.

namespace geminid::planner {

struct RoundOptions {
  // Streamed state needs staging on the device; set aside only if it may be used.
  bool allow_streamed = true;
  // Chunks that stay on the device if they fit at all, whatever the prices say; one entry per
  // chunk, or empty.
  std::vector<std::uint8_t> pinned = {};
};

// Everything starts with the option that takes least of the device. Then, best seconds saved per
// byte and moment first, each item takes its selected option if there is room; then sweeps over all
// items, each taking the option with the least potential, where the potential is a norm of the
// resources' seconds that tends to their maximum, plus the price of the bytes. Room is that of
// every moment, not of the segments only. O((items + gaps) log moments) a sweep.
Decisions Round(const Prepared& prepared, const PriceModel& model, const Prices& prices,
                const RoundOptions& options);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_CORE_PLANNER_HIERARCHY_ROUND_H_
