#ifndef GEMINID_DAEMON_PLANNER_TIERS_LEDGER_H_
#define GEMINID_DAEMON_PLANNER_TIERS_LEDGER_H_

#include <cstdint>
#include <vector>

#include "daemon/planner/tiers/occupancy.h"
#include "daemon/planner/tiers/tier_plan.h"

// The owners of a tier's bytes at the moment when the tier is fullest.

namespace geminid::planner {

// Fills the device's ledger from the device plan, or without one from `used_bytes`, those of the
// chunks that each moment uses.
void FillDeviceLedger(const TierProblem& problem, const Occupancy& occupancy,
                      const std::vector<std::uint64_t>& used_bytes, TierPlan& plan);

// Fills the host's ledger, whose bytes are the same at all moments, and the bytes that the host
// lacks.
void FillHostLedger(const TierProblem& problem, const Occupancy& occupancy, TierPlan& plan);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_TIERS_LEDGER_H_
