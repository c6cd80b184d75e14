// The machine that a simulated job runs on, and the job's workload.
#ifndef GEMINID_TOOLS_SIM_MACHINE_H_
#define GEMINID_TOOLS_SIM_MACHINE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "daemon/core/transfers/transfer_scheduler.h"
#include "daemon/planner/contract/trace.h"

namespace geminid::sim {

// A ring over P ranks: P - 1 rounds, each of which moves 1/P of the gathered bytes past every rank
// (Thakur, Rabenseifner and Gropp, 2005). Speeds of 0 take no time.
struct CollectiveModel {
  double latency_seconds = 0;   // of one round
  double bytes_per_second = 0;  // past each rank
};

// All speeds are those of one rank or node alone; users of a shared resource share its speed. A
// speed of 0 takes no time, a size of 0 has no limit.
struct Machine {
  int nodes = 1;
  int ranks_per_node = 1;

  // Each rank's link to the host, by direction, and both at once.
  double up_bytes_per_second = 0;
  double down_bytes_per_second = 0;
  double both_bytes_per_second = 0;
  double link_latency_seconds = 0;  // the link carries the next copy meanwhile
  // Ranks of a node that share a root complex, which has this speed in each direction.
  int ranks_per_root = 0;
  double root_bytes_per_second = 0;
  double host_bytes_per_second = 0;  // host memory of a node, reads and writes together

  CollectiveModel inside_node;
  CollectiveModel between_nodes;  // with several nodes; all rings then run at the slower speed

  double update_parameters_per_second = 0;         // on the host, one rank
  double update_host_bytes_per_parameter = 26;     // read and written: AdamW with a split master
  double device_update_parameters_per_second = 0;  // on the device
  double measure_bytes_per_second = 0;             // squares of a reduced gradient

  double disk_read_bytes_per_second = 0;  // of a node
  double disk_write_bytes_per_second = 0;

  double request_seconds = 0;  // from a client's ring to the daemon, and the same back
  uint64_t host_bytes = 0;     // of a node, that the daemon can hand out; 0: no limit
  core::TransferLimits transfers;

  double compute_noise = 0;  // standard deviation of the logarithm of an operator's time
  double update_noise = 0;

  int world_size() const { return nodes * ranks_per_node; }
};

// A number of a machine by its name: what files and flags set, and what Validate checks.
struct MachineField {
  const char* name;  // as above; of collectives "inside_node.latency_seconds"
  double (*get)(const Machine&);
  void (*set)(Machine*, double);
  bool whole;  // takes whole numbers only
};
const std::vector<MachineField>& MachineFields();

// NOT_FOUND lists the fields. INVALID_ARGUMENT: a value that is not a number, is negative, or is
// not whole where it must be.
absl::Status SetField(const std::string& name, double value, Machine* machine);

// Sets the speeds of the links to those of the trace.
void TakeLinks(const planner::LinkModel& links, Machine* machine);

// INVALID_ARGUMENT names the field that is negative or makes no sense.
absl::Status Validate(const Machine& machine);

// How long the ring takes for `bytes` gathered, once all ranks have begun.
double CollectiveSeconds(const Machine& machine, uint64_t bytes);

// The optimizer's work on one chunk, on one rank.
struct ChunkUpdate {
  uint64_t parameters = 0;  // 0: nothing to update
  bool on_device = false;   // the state lives there; the trace then moves nothing for this chunk
  // The state lives on the host; its update streams so many bytes through the device, up and back.
  uint64_t streamed_bytes = 0;
  uint64_t streamed_gradient_bytes = 0;  // go up with them
  uint64_t host_bytes = 0;       // state besides weight and gradient
  uint64_t disk_read_bytes = 0;  // state on disk: read before the update, written after it
  uint64_t disk_write_bytes = 0;
};

struct Workload {
  planner::Trace trace;                         // of each rank: all run the same
  std::vector<ChunkUpdate> updates;             // one per chunk of the trace
  int micro_batches = 1;                        // iterations of the trace per step
  uint64_t granule_bytes = uint64_t{16} << 20;  // a chunk's copies are cut into pieces of this
};

// Updates of every trained chunk on the host: element_bytes of weight per parameter, and
// `state_bytes` more of remainder and moments.
std::vector<ChunkUpdate> UpdatesOnHost(const planner::Trace& trace, double element_bytes = 2,
                                       double state_bytes = 10);

// Where all optimizer state lives, as with geminid-train --optimizer-state.
enum class StateTier { kHost, kStreamed, kDisk };

// Moves the state from the host to the tier. Updates then stream state, weight and gradient through
// the device, or read the state from the disk and write it back. INVALID_ARGUMENT names the rates
// that the machine lacks for that.
absl::Status MoveState(StateTier tier, const Machine& machine, Workload* workload);

// INVALID_ARGUMENT: a malformed trace, or one whose transfers exceed their chunks.
absl::Status Validate(const Workload& workload);

}  // namespace geminid::sim

#endif  // GEMINID_TOOLS_SIM_MACHINE_H_
