#include "tools/sim/inputs.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "proto/shm/lease.h"
#include "tools/sim/compare.h"

namespace geminid::sim {
namespace {

using planner::OptimizerPlace;

std::vector<ChunkUpdate> UpdatesOf(const std::vector<planner::OptimizerItem>& items) {
  std::vector<ChunkUpdate> updates(items.size());
  for (size_t c = 0; c < items.size(); ++c) {
    updates[c].parameters = items[c].parameters;
    updates[c].host_bytes = items[c].remainder_bytes + items[c].moment_bytes;
  }
  return updates;
}

// The disk plan chooses the chunks whose state is on disk. Each step reads what the plan loads, and
// writes all state that is on disk.
void PutOnDisk(const planner::DiskPlan& disk, std::vector<ChunkUpdate>* updates) {
  if (!disk.used) return;
  for (size_t i = 0; i < disk.objects.size(); ++i) {
    ChunkUpdate& update = (*updates)[disk.objects[i].chunk];
    update.disk_write_bytes += disk.trace.chunks[i].size_bytes;
    if (disk.objects[i].is_state) update.host_bytes = 0;
  }
  for (const planner::Step& step : disk.plan.steps) {
    for (const planner::Load& load : step.loads) {
      (*updates)[disk.objects[load.chunk].chunk].disk_read_bytes +=
          disk.trace.chunks[load.chunk].transfer_bytes;
    }
  }
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
  machine.disk_read_bytes_per_second = from.disk_read_bytes_per_second;
  machine.disk_write_bytes_per_second = from.disk_write_bytes_per_second;
  machine.host_bytes = job.host_bytes;
  return machine;
}

std::string Lacking(const planner::HierarchyPlan& plan) {
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
  absl::StatusOr<planner::HierarchyProblem> problem = MakeProblem(model, recomputing);
  if (!problem.ok()) return problem.status();
  problem->options.planner.alignment_bytes = shm::kSlotBytes;
  absl::StatusOr<planner::HierarchyPlan> plan = MakeHierarchyPlan(*problem);
  if (!plan.ok()) return plan.status();
  if (!plan->fits) return absl::ResourceExhaustedError(Lacking(*plan));
  Input input;
  input.description = model.name;
  input.workload.updates = UpdatesOf(problem->optimizer);
  uint64_t parameters = 0, state = 0, gradients = 0;
  for (size_t c = 0; c < problem->optimizer.size(); ++c) {
    const planner::OptimizerItem& item = problem->optimizer[c];
    ChunkUpdate& update = input.workload.updates[c];
    update.on_device = plan->decisions.optimizer[c] == OptimizerPlace::kDevice;
    if (plan->decisions.optimizer[c] == OptimizerPlace::kStreamed) {
      update.streamed_bytes = item.state_bytes();
    }
    parameters += item.parameters;
    state += item.state_bytes();
    gradients += item.gradient_bytes;
  }
  PutOnDisk(plan->disk, &input.workload.updates);
  planner::UpdateTraffic traffic;
  if (parameters > 0) {
    traffic.state_bytes = static_cast<double>(state) / static_cast<double>(parameters);
    traffic.gradient_bytes = static_cast<double>(gradients) / static_cast<double>(parameters);
  }
  input.machine = MakeSimulatedMachine(recomputing, problem->machine, traffic);
  input.workload.trace = std::move(plan->device_trace);
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
