// The flags of geminictl plan, as text and parsed.
#ifndef GEMINID_TOOLS_GEMINICTL_PLAN_PLAN_OPTIONS_H_
#define GEMINID_TOOLS_GEMINICTL_PLAN_PLAN_OPTIONS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/geminictl/plan/this_machine.h"
#include "training/forecast/catalogue.h"
#include "training/forecast/model.h"
#include "training/forecast/problem.h"
#include "training/forecast/trace_file.h"
#include "training/meshes/place.h"

namespace CLI {
class App;
}

namespace geminid::ctl {

// The flags as text; empty: not given.
struct PlanFlags {
  std::string model, config, trace;
  std::string layers, hidden, heads, parameters;
  std::string hardware;
  std::string ranks, ranks_per_node, nodes, batch, sequence, optimizer, state_dtype;
  std::string activations;
  std::string device_memory, host_memory, disk;
  std::string link_up, link_down, link_both, link_latency, uplink, peer, network;
  std::string peer_latency, network_latency;
  std::string compute, achieved, device_bandwidth, dram, cpu_update_share;
  std::string disk_read, disk_write, disk_endurance;
  std::string save_trace;
  std::string parallel, accumulate, place;
  bool momentum = false;
  bool largest = false;
  bool list_models = false;
  bool list_hardware = false;
};

void AddPlanFlags(CLI::App* app, PlanFlags* flags);

// The subject of a plan: a model, the members of a family, or a trace.
struct PlanRequest {
  std::optional<forecast::Model> model;
  const forecast::Family* family = nullptr;  // to find its largest member that fits
  std::optional<forecast::RecordedTrace> trace;
  forecast::Job job;
  std::uint64_t micro_batches = 0;  // 0: the planner chooses
  bool host_is_given = false;       // else as much as the plan needs
  // The flags that are missing to predict times; empty: all rates are known.
  std::vector<std::string> missing_rates;
  std::optional<parallel::PlacedRun> placed;  // a measured run, for which a mesh is chosen
  std::vector<std::string> notes;             // sentences about choices that the flags leave open
};

// The limit of a sequence's tokens if no flag gives the length. A model's context is only a limit,
// not the length that the model is trained with.
inline constexpr std::uint64_t kSequenceUnlessChosen = 4096;

// Reads the files that the flags name. INVALID_ARGUMENT names the flag.
absl::StatusOr<PlanRequest> ParsePlanFlags(const PlanFlags& flags, const ThisMachine& machine);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_PLAN_PLAN_OPTIONS_H_
