// A training job on simulated nodes: the planner's schedule, the daemon's engine and the client's
// protocol, with simulated time, links, disks and failures.
//
// The product's own code: MakePlan, the engine with its chunk states, extents, ledger, tickets and
// the transfer scheduler (one per node, driven request by request), the shared-memory words and the
// lease protocol. Modelled here: the work of the client's threads (mover, updater, trainer), how
// long work takes, and which resources are shared.
#ifndef GEMINID_TOOLS_SIM_SIMULATION_H_
#define GEMINID_TOOLS_SIM_SIMULATION_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/sim/machine.h"
#include "tools/sim/observer.h"
#include "tools/sim/policies/schedule.h"

namespace geminid::sim {

enum class FailureKind { kRank, kDaemon };

struct Failure {
  FailureKind kind = FailureKind::kRank;
  int index = 0;  // the rank, or the node of the daemon
  double at_seconds = 0;
  double outage_seconds = 1;  // kDaemon: until the next daemon serves
};

// How a job recovers after a rank is killed. The daemons retain all host memory. Every process
// restarts, the current step starts again, and a current update continues.
struct Recovery {
  // The communicator reports a dead rank within two seconds.
  double detect_seconds = 2;
  double restart_seconds = 1;  // processes up, attached, and connected
};

struct SimulationOptions {
  uint64_t warmup_steps = 1;  // not reported: the first has an empty device and no update under way
  uint64_t steps = 3;
  uint64_t seed = 1;
  bool keeps_events = false;      // for a timeline
  std::vector<Failure> failures;  // counted from the start of the run
  Recovery recovery;
};

struct RecoveryResult {
  Failure failure;
  double resumed_at_seconds = 0;
  // Computation since the last commit that the whole job repeats.
  double lost_seconds = 0;
};

struct SimulationResult {
  std::vector<double> step_seconds;  // of the reported steps
  double first_step_seconds = 0;
  double reported_from_seconds = 0;  // on the simulated clock; spans and samples begin at 0
  std::vector<RankUse> ranks;        // over the reported steps
  std::vector<uint64_t> host_bytes;  // of each node, from its daemon's ledger
  uint64_t arena_bytes = 0;
  // Per moment of rank 0's last iteration; see Observer.
  std::vector<DeviceBytes> moments;
  std::vector<RecoveryResult> recoveries;
  std::vector<Span> spans;
  std::vector<MemorySample> samples;
  uint64_t events = 0;
  uint64_t requests = 0;  // that the daemons served
};

// Pure; deterministic in its arguments. INVALID_ARGUMENT: a malformed argument. RESOURCE_EXHAUSTED:
// a daemon refuses the job; the message is the daemon's. INTERNAL: the schedule does not work, or a
// daemon's accounts are wrong.
absl::StatusOr<SimulationResult> Simulate(const Machine& machine, const Workload& workload,
                                          const Schedule& schedule,
                                          const SimulationOptions& options);

}  // namespace geminid::sim

#endif  // GEMINID_TOOLS_SIM_SIMULATION_H_
