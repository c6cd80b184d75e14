#ifndef GEMINID_DAEMON_PLANNER_TIERS_MACHINE_H_
#define GEMINID_DAEMON_PLANNER_TIERS_MACHINE_H_

#include <cstdint>

#include "absl/status/status.h"

// The machine as one rank sees it. Rates are measured in warm-up or taken from a table.

namespace geminid::planner {

struct Machine {
  // This rank's link to host memory; each rate while the other direction is idle.
  double up_bytes_per_second = 0;    // host to device
  double down_bytes_per_second = 0;  // device to host
  // The sum of both directions while both run; 0: each runs at its full rate.
  double both_bytes_per_second = 0;
  // The rate of all ranks of the node together in one direction (a shared root complex or host
  // memory). 0: no limit beyond each rank's own link.
  double node_up_bytes_per_second = 0;
  double node_down_bytes_per_second = 0;
  // The part of a transfer's time that does not depend on its size.
  double latency_seconds = 0;

  // Host memory of the node, which its ranks share. Reads and writes count alike.
  double host_memory_bytes_per_second = 0;
  // eta: the fraction of host_memory_bytes_per_second that the CPU optimizer reaches while training
  // runs, 0 < eta <= 1.
  double cpu_update_share = 0.8;
  // Device memory: the rate bounds updates of state that lies on the device.
  double device_memory_bytes_per_second = 0;

  std::uint64_t host_bytes = 0;  // that this rank may use

  std::uint32_t ranks_on_node = 1;
  std::uint32_t world_size = 1;
};

// INVALID_ARGUMENT naming the field.
absl::Status ValidateMachine(const Machine& machine);

// Bytes moved per parameter by an optimizer step.
struct UpdateTraffic {
  // Weight, remainder and moments: 12 with Adam and a split master.
  double state_bytes = 12;
  double gradient_bytes = 2;
};

// Parameters per second of all ranks of the node together, for each way of updating. CostOfUpdate
// has the cost of streaming on each resource.
//
//   host       eta B_dram / (2 state + 2 gradient): the kernel reads and writes the state; the
//              copy of the gradient writes it and the kernel reads it. 28 B with Adam.
//   streamed   min(n B_up / state, n B_down / state, n B_both / (2 state), B_dram / (2 state)):
//              the state goes up and comes back, the gradient never leaves the device.
//   device     n B_device / (2 state + gradient).
//
// Streaming beats the CPU when streamed > host. With one GPU at 50 GB/s the link is the limit, with
// eight GPUs it is host memory (docs/planner.md).
double HostUpdateRate(const Machine& machine, const UpdateTraffic& traffic);
double DeviceUpdateRate(const Machine& machine, const UpdateTraffic& traffic);

// The rate of one rank's link when all ranks of the node use theirs.
double UpRate(const Machine& machine);
double DownRate(const Machine& machine);
double BothRate(const Machine& machine);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_TIERS_MACHINE_H_
