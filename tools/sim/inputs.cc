#include "tools/sim/inputs.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "tools/sim/compare.h"
#include "training/forecast/forecast.h"

namespace geminid::sim {
namespace {

std::vector<ChunkUpdate> UpdatesOf(const std::vector<planner::OptimizerItem>& items) {
  std::vector<ChunkUpdate> updates(items.size());
  for (size_t c = 0; c < items.size(); ++c) {
    updates[c].parameters = items[c].parameters;
    updates[c].host_bytes = items[c].remainder_bytes + items[c].moment_bytes;
  }
  return updates;
}

Machine MakeSimulatedMachine(const forecast::Job& job, const planner::Machine& from,
                             const planner::UpdateTraffic& traffic) {
  Machine machine;
  machine.nodes = static_cast<int>(job.nodes);
  machine.ranks_per_node = static_cast<int>(job.ranks_per_node());
  machine.up_bytes_per_second = from.up_bytes_per_second;
  machine.down_bytes_per_second = from.down_bytes_per_second;
  machine.both_bytes_per_second = from.both_bytes_per_second;
  machine.link_latency_seconds = from.latency_seconds;
  if (from.node_up_bytes_per_second > 0) {
    machine.ranks_per_root = machine.ranks_per_node;
    machine.root_bytes_per_second =
        std::min(from.node_up_bytes_per_second, from.node_down_bytes_per_second);
  }
  machine.host_bytes_per_second = from.host_memory_bytes_per_second;
  machine.inside_node.bytes_per_second = job.hardware.peer_bytes_per_second;
  machine.between_nodes.bytes_per_second = job.hardware.network_bytes_per_second;
  machine.update_host_bytes_per_parameter = 2 * traffic.state_bytes + traffic.gradient_bytes;
  machine.update_parameters_per_second = HostUpdateRate(from, traffic) / machine.ranks_per_node;
  machine.device_update_parameters_per_second =
      DeviceUpdateRate(from, traffic) / machine.ranks_per_node;
  machine.host_bytes = job.host_bytes;
  return machine;
}

std::string Lacking(const planner::TierPlan& plan) {
  std::string text = "it does not fit:";
  for (size_t tier = 0; tier < plan.lacking.size(); ++tier) {
    if (plan.lacking[tier] == 0) continue;
    absl::StrAppend(&text, " ", TierName(static_cast<planner::Tier>(tier)), " lacks ",
                    base::FormatBytes(plan.lacking[tier]), " per rank;");
  }
  return text + " geminictl plan says what would help";
}

}  // namespace

absl::StatusOr<Input> FromTraceFile(const std::string& path) {
  absl::StatusOr<v1::TraceFile> file = forecast::LoadTraceFile(path);
  if (!file.ok()) return file.status();
  absl::StatusOr<Input> input = FromTrace(*file);
  if (input.ok()) return input;
  return absl::Status(input.status().code(), absl::StrCat(path, ": ", input.status().message()));
}

absl::StatusOr<Input> FromTrace(const v1::TraceFile& file) {
  absl::StatusOr<forecast::RecordedTrace> recorded = forecast::FromMessage(file);
  if (!recorded.ok()) return recorded.status();
  if (!recorded->activations.empty()) {
    return absl::InvalidArgumentError(
        "the trace does not say where its activations are; simulate a recorded trace, or --model");
  }
  Input input;
  input.description = recorded->description;
  input.machine.ranks_per_node = static_cast<int>(std::max(recorded->ranks_on_node, 1U));
  input.machine.nodes = static_cast<int>(std::max(recorded->world_size, 1U)) /
                        std::max(input.machine.ranks_per_node, 1);
  TakeLinks(recorded->trace.link, &input.machine);
  input.workload.updates =
      recorded->optimizer.empty() ? UpdatesOnHost(recorded->trace) : UpdatesOf(recorded->optimizer);
  input.workload.trace = std::move(recorded->trace);
  return input;
}

absl::StatusOr<Input> FromModel(const forecast::Model& model, const forecast::Job& job) {
  forecast::Job recomputing = job;
  recomputing.activations = forecast::Activations::kRecompute;
  absl::StatusOr<forecast::Forecast> made = forecast::MakeForecast(model, recomputing);
  if (!made.ok()) return made.status();
  if (!made->fits()) return absl::ResourceExhaustedError(Lacking(made->plan));
  Input input;
  input.description = model.name;
  const std::vector<planner::OptimizerItem>& items = made->problem.optimizer;
  input.workload.updates = UpdatesOf(items);
  uint64_t parameters = 0, state = 0, gradients = 0;
  for (size_t c = 0; c < items.size(); ++c) {
    const planner::OptimizerPlace place = made->plan.decisions.optimizer[c];
    input.workload.updates[c].on_device = place == planner::OptimizerPlace::kDevice;
    parameters += items[c].parameters;
    state += items[c].state_bytes();
    gradients += items[c].gradient_bytes;
  }
  planner::UpdateTraffic traffic;
  if (parameters > 0) {
    traffic.state_bytes = static_cast<double>(state) / static_cast<double>(parameters);
    traffic.gradient_bytes = static_cast<double>(gradients) / static_cast<double>(parameters);
  }
  input.machine = MakeSimulatedMachine(recomputing, made->problem.machine, traffic);
  input.workload.trace = std::move(made->plan.device_trace);
  return input;
}

absl::StatusOr<Input> FromRandom(const std::string& name) {
  const size_t colon = name.find(':');
  std::string kinds;
  for (int k = 0; k < kTraceKinds; ++k) {
    const auto kind = static_cast<TraceKind>(k);
    absl::StrAppend(&kinds, kinds.empty() ? "" : ", ", Name(kind));
    uint64_t seed = 0;
    if (name.substr(0, colon) != Name(kind) || colon == std::string::npos ||
        !absl::SimpleAtoi(name.substr(colon + 1), &seed)) {
      continue;
    }
    Input input;
    input.description = name;
    input.workload.trace = RandomTrace(kind, seed);
    input.workload.updates.resize(input.workload.trace.chunks.size());
    input.machine = LinkAlone(input.workload.trace);
    return input;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", name, "' is not a random trace; give KIND:SEED with a kind of: ", kinds));
}

}  // namespace geminid::sim
