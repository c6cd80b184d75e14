// Takes this machine's measure for a simulation of the host device: what a warm-up would measure,
// and nothing of a training run.
#ifndef GEMINID_TOOLS_SIM_MEASURE_MEASURE_H_
#define GEMINID_TOOLS_SIM_MEASURE_MEASURE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/sim/machine.h"
#include "tools/trainer/model_config.h"

namespace geminid::sim {

struct MeasureOptions {
  trainer::ModelConfig model;
  int ranks = 1;
  uint64_t batch = 4;  // sequences of all ranks in one micro-batch
  int rounds = 8;      // micro-batches measured, after one that warms up
};

struct Measurement {
  // Of each rank; the arena's size and the links are left at zero, for whoever simulates to set.
  Workload workload;
  // Rates of this machine with all ranks at work: processors, copies, collectives, updates, norms,
  // wake-ups, and how much operators vary.
  Machine machine;
};

// Runs the model's operators on one thread per rank, all at once, on parameters in plain memory,
// then each of the other kinds of work. An operator's time is the median over rounds and ranks.
// Blocks for seconds. INVALID_ARGUMENT: the batch does not divide among the ranks.
absl::StatusOr<Measurement> Measure(const MeasureOptions& options);

}  // namespace geminid::sim

#endif  // GEMINID_TOOLS_SIM_MEASURE_MEASURE_H_
