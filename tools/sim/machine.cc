#include "tools/sim/machine.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace geminid::sim {
namespace {

// Limits that keep a mistyped number from taking all memory.
constexpr int kMaxNodes = 4096;
constexpr int kMaxRanksPerNode = 64;
constexpr int kMaxMicroBatches = 4096;
constexpr double kLargestValue = 1e18;

double RingSeconds(const CollectiveModel& model, int ranks, uint64_t bytes) {
  const double rounds = ranks - 1;
  const double moved = static_cast<double>(bytes) * rounds / ranks;
  return rounds * model.latency_seconds +
         (model.bytes_per_second > 0 ? moved / model.bytes_per_second : 0);
}

}  // namespace

const std::vector<MachineField>& MachineFields() {
#define GEMINID_FIELD(field, whole)                                            \
  MachineField {                                                               \
#field, [](const Machine& m) { return static_cast<double>(m.field); },       \
        [](Machine* m, double value) {                                           \
          m->field = static_cast<std::remove_reference_t<decltype(m->field)>>(value); \
        },                                                                       \
        whole \
  }
  static const std::vector<MachineField> fields = {
      GEMINID_FIELD(nodes, true),
      GEMINID_FIELD(ranks_per_node, true),
      GEMINID_FIELD(ranks_per_root, true),
      GEMINID_FIELD(up_bytes_per_second, false),
      GEMINID_FIELD(down_bytes_per_second, false),
      GEMINID_FIELD(both_bytes_per_second, false),
      GEMINID_FIELD(link_latency_seconds, false),
      GEMINID_FIELD(root_bytes_per_second, false),
      GEMINID_FIELD(host_bytes_per_second, false),
      GEMINID_FIELD(inside_node.latency_seconds, false),
      GEMINID_FIELD(inside_node.bytes_per_second, false),
      GEMINID_FIELD(between_nodes.latency_seconds, false),
      GEMINID_FIELD(between_nodes.bytes_per_second, false),
      GEMINID_FIELD(update_parameters_per_second, false),
      GEMINID_FIELD(update_host_bytes_per_parameter, false),
      GEMINID_FIELD(device_update_parameters_per_second, false),
      GEMINID_FIELD(measure_bytes_per_second, false),
      GEMINID_FIELD(disk_read_bytes_per_second, false),
      GEMINID_FIELD(disk_write_bytes_per_second, false),
      GEMINID_FIELD(request_seconds, false),
      GEMINID_FIELD(compute_noise, false),
      GEMINID_FIELD(update_noise, false),
      GEMINID_FIELD(host_bytes, true),
  };
#undef GEMINID_FIELD
  return fields;
}

absl::Status SetField(const std::string& name, double value, Machine* machine) {
  std::string known;
  for (const MachineField& field : MachineFields()) {
    absl::StrAppend(&known, known.empty() ? "" : ", ", field.name);
    if (name != field.name) continue;
    if (!std::isfinite(value) || value < 0 || value > kLargestValue ||
        (field.whole && value != std::floor(value))) {
      return absl::InvalidArgumentError(absl::StrCat(name, " is ", value, "; it must be a ",
                                                     field.whole ? "whole " : "",
                                                     "number from 0 to 1e18"));
    }
    field.set(machine, value);
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("a machine has no '", name, "'; it has: ", known));
}

void TakeLinks(const planner::LinkModel& links, Machine* machine) {
  machine->up_bytes_per_second = links.h2d_bytes_per_second;
  machine->down_bytes_per_second = links.d2h_bytes_per_second;
  machine->link_latency_seconds = links.latency_seconds;
  // The planner's share is per direction; this is the rate of both directions together.
  machine->both_bytes_per_second =
      links.both_directions_share < 1
          ? links.both_directions_share * (links.h2d_bytes_per_second + links.d2h_bytes_per_second)
          : 0;
  if (links.uplink_bytes_per_second > 0 && links.ranks_per_uplink > 1) {
    machine->ranks_per_root = static_cast<int>(links.ranks_per_uplink);
    machine->root_bytes_per_second = links.uplink_bytes_per_second;
  }
}

absl::Status Validate(const Machine& machine) {
  const auto in_range = [](const char* name, int value, int least, int most) {
    if (value >= least && value <= most) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is ", value, "; it must be from ", least, " to ", most));
  };
  absl::Status status = in_range("nodes", machine.nodes, 1, kMaxNodes);
  status.Update(in_range("ranks_per_node", machine.ranks_per_node, 1, kMaxRanksPerNode));
  status.Update(in_range("ranks_per_root", machine.ranks_per_root, 0, kMaxRanksPerNode));
  for (const MachineField& field : MachineFields()) {
    const double value = field.get(machine);
    if (std::isfinite(value) && value >= 0) continue;
    status.Update(absl::InvalidArgumentError(
        absl::StrCat(field.name, " is ", value, "; it must be 0 or more")));
  }
  if (!status.ok()) return status;
  if (machine.up_bytes_per_second == 0 || machine.down_bytes_per_second == 0) {
    return absl::InvalidArgumentError("a link needs a speed in both directions");
  }
  return absl::OkStatus();
}

double CollectiveSeconds(const Machine& machine, uint64_t bytes) {
  if (machine.world_size() == 1) return 0;
  const double inside = RingSeconds(machine.inside_node, machine.world_size(), bytes);
  if (machine.nodes == 1) return inside;
  return std::max(inside, RingSeconds(machine.between_nodes, machine.world_size(), bytes));
}

std::vector<ChunkUpdate> UpdatesOnHost(const planner::Trace& trace, double element_bytes,
                                       double state_bytes) {
  std::vector<ChunkUpdate> updates(trace.chunks.size());
  for (size_t c = 0; c < updates.size(); ++c) {
    const planner::Chunk& chunk = trace.chunks[c];
    if (chunk.frozen) continue;
    const double parameters = static_cast<double>(chunk.transfer_bytes) / element_bytes;
    updates[c].parameters = static_cast<uint64_t>(parameters);
    updates[c].host_bytes = static_cast<uint64_t>(parameters * state_bytes);
  }
  return updates;
}

absl::Status MoveState(StateTier tier, const Machine& machine, Workload* workload) {
  const bool has_disk =
      machine.disk_read_bytes_per_second > 0 && machine.disk_write_bytes_per_second > 0;
  if (tier == StateTier::kDisk && !has_disk) {
    return absl::InvalidArgumentError(
        "state on disk needs the rates of the disk; set disk_read_bytes_per_second and "
        "disk_write_bytes_per_second");
  }
  for (size_t c = 0; c < workload->updates.size(); ++c) {
    ChunkUpdate& update = workload->updates[c];
    if (update.parameters == 0) continue;
    if (tier == StateTier::kDisk) {
      update.disk_read_bytes = update.disk_write_bytes = std::exchange(update.host_bytes, 0);
    } else if (tier == StateTier::kStreamed) {
      const planner::Chunk& chunk = workload->trace.chunks[c];
      update.streamed_bytes = update.host_bytes + chunk.transfer_bytes;
      update.streamed_gradient_bytes = chunk.gradient_bytes;
    }
  }
  return absl::OkStatus();
}

absl::Status Validate(const Workload& workload) {
  if (absl::Status status = ValidateTrace(workload.trace); !status.ok()) return status;
  if (workload.updates.size() != workload.trace.chunks.size()) {
    return absl::InvalidArgumentError(absl::StrCat(workload.updates.size(), " updates for ",
                                                   workload.trace.chunks.size(), " chunks"));
  }
  if (workload.micro_batches < 1 || workload.micro_batches > kMaxMicroBatches) {
    return absl::InvalidArgumentError(absl::StrCat("micro_batches is ", workload.micro_batches,
                                                   "; it must be from 1 to ", kMaxMicroBatches));
  }
  if (workload.granule_bytes == 0) {
    return absl::InvalidArgumentError("granule_bytes is 0; nothing would move");
  }
  for (size_t c = 0; c < workload.trace.chunks.size(); ++c) {
    const planner::Chunk& chunk = workload.trace.chunks[c];
    if (chunk.transfer_bytes > chunk.size_bytes || chunk.gradient_bytes > chunk.size_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("chunk ", c, " moves more than its ", chunk.size_bytes, " bytes"));
    }
  }
  return absl::OkStatus();
}

}  // namespace geminid::sim
