// Several policies on one workload.
#ifndef GEMINID_TOOLS_SIM_COMPARE_H_
#define GEMINID_TOOLS_SIM_COMPARE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/sim/machine.h"
#include "tools/sim/policies/policy.h"
#include "tools/sim/random_trace.h"
#include "tools/sim/simulation.h"

namespace geminid::sim {

// The result of one policy.
struct Outcome {
  std::string policy;
  // Why the policy cannot run this workload: what it must keep does not fit. Empty: it can.
  std::string does_not_fit;
  double up_bytes = 0;  // per iteration and rank, of the schedule
  double down_bytes = 0;
  double step_seconds = 0;  // mean of the simulated steps
  double wait_seconds = 0;  // per step, mean over the ranks
};

// One outcome per policy, in their order. Errors are those of Simulate, except for a policy that
// does not fit.
absl::StatusOr<std::vector<Outcome>> Compare(const Machine& machine, const Workload& workload,
                                             const std::vector<PolicySpec>& policies,
                                             const SimulationOptions& options);

// A node with one rank and nothing but the trace's link, as plans assume.
Machine LinkAlone(const planner::Trace& trace);

// One rival against the planner over many traces. Ratios are rival over planner: above 1, the
// planner is better. Times compare with the planner's plans for the least time, bytes with its
// plans for the least bytes.
struct Savings {
  std::string rival;
  std::string kind;
  uint64_t traces = 0;        // on which the rival fits
  uint64_t does_not_fit = 0;  // on which it does not
  uint64_t auto_moves_more = 0;
  uint64_t auto_takes_longer = 0;
  std::vector<double> byte_ratios;  // ascending; both directions together
  std::vector<double> time_ratios;  // ascending
};

// The relative difference from which on auto takes longer or moves more; less is rounding.
inline constexpr double kSavingsTolerance = 1e-6;

// Compares the planner with every other policy on `traces` random traces of each kind, from
// `first_seed`.
absl::StatusOr<std::vector<Savings>> CompareOnRandomTraces(uint64_t traces, uint64_t first_seed);

// The p-th part of ascending values: 0 the least, 0.5 the median, 1 the greatest. Nearest rank.
double Quantile(const std::vector<double>& ascending, double p);

}  // namespace geminid::sim

#endif  // GEMINID_TOOLS_SIM_COMPARE_H_
