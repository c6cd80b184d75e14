// The inputs of a simulation, from files and names.
#ifndef GEMINID_TOOLS_SIM_INPUTS_H_
#define GEMINID_TOOLS_SIM_INPUTS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "tools/sim/machine.h"
#include "training/forecast/problem.h"
#include "training/forecast/trace_file.h"

namespace geminid::sim {

struct Input {
  std::string description;
  Machine machine;
  Workload workload;
};

// A trace file, as `geminictl trace save` writes it. The machine has the trace's ranks and links,
// and nothing else.
absl::StatusOr<Input> FromTraceFile(const std::string& path);
// The same from the contents of such a file.
absl::StatusOr<Input> FromTrace(const v1::TraceFile& file);

// A model on given hardware, with optimizer state where the engine would place it and activations
// recomputed. RESOURCE_EXHAUSTED if it does not fit.
absl::StatusOr<Input> FromModel(const forecast::Model& model, const forecast::Job& job);

// "chain:7": a random trace of a kind and seed, on a machine with nothing but a link.
absl::StatusOr<Input> FromRandom(const std::string& name);

}  // namespace geminid::sim

#endif  // GEMINID_TOOLS_SIM_INPUTS_H_
