#include "tools/sim/machine.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "absl/strings/str_cat.h"

namespace geminid::sim {
namespace {

// Limits that keep a mistyped number from taking all memory.
constexpr int kMaxNodes = 4096;
constexpr int kMaxRanksPerNode = 64;
constexpr int kMaxMicroBatches = 4096;

absl::Status CheckSpeeds(const Machine& machine) {
  const struct {
    const char* name;
    double value;
  } numbers[] = {
      {"up_bytes_per_second", machine.up_bytes_per_second},
      {"down_bytes_per_second", machine.down_bytes_per_second},
      {"both_bytes_per_second", machine.both_bytes_per_second},
      {"link_latency_seconds", machine.link_latency_seconds},
      {"root_bytes_per_second", machine.root_bytes_per_second},
      {"host_bytes_per_second", machine.host_bytes_per_second},
      {"inside_node.latency_seconds", machine.inside_node.latency_seconds},
      {"inside_node.bytes_per_second", machine.inside_node.bytes_per_second},
      {"between_nodes.latency_seconds", machine.between_nodes.latency_seconds},
      {"between_nodes.bytes_per_second", machine.between_nodes.bytes_per_second},
      {"update_parameters_per_second", machine.update_parameters_per_second},
      {"update_host_bytes_per_parameter", machine.update_host_bytes_per_parameter},
      {"device_update_parameters_per_second", machine.device_update_parameters_per_second},
      {"measure_bytes_per_second", machine.measure_bytes_per_second},
      {"disk_read_bytes_per_second", machine.disk_read_bytes_per_second},
      {"disk_write_bytes_per_second", machine.disk_write_bytes_per_second},
      {"processor_copy_bytes_per_second", machine.processor_copy_bytes_per_second},
      {"request_seconds", machine.request_seconds},
      {"compute_noise", machine.compute_noise},
      {"update_noise", machine.update_noise},
  };
  for (const auto& number : numbers) {
    if (!std::isfinite(number.value) || number.value < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(number.name, " is ", number.value, "; it must be 0 or more"));
    }
  }
  return absl::OkStatus();
}

double RingSeconds(const CollectiveModel& model, int ranks, uint64_t bytes) {
  const double rounds = ranks - 1;
  const double moved = static_cast<double>(bytes) * rounds / ranks;
  return rounds * model.latency_seconds +
         (model.bytes_per_second > 0 ? moved / model.bytes_per_second : 0);
}

}  // namespace

void TakeLinks(const planner::LinkModel& links, Machine* machine) {
  machine->up_bytes_per_second = links.h2d_bytes_per_second;
  machine->down_bytes_per_second = links.d2h_bytes_per_second;
  machine->link_latency_seconds = links.latency_seconds;
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
  status.Update(in_range("processors", machine.processors, 0, 1 << 16));
  status.Update(CheckSpeeds(machine));
  if (!status.ok()) return status;
  if (machine.up_bytes_per_second == 0 || machine.down_bytes_per_second == 0) {
    return absl::InvalidArgumentError("a link needs a speed in both directions");
  }
  if (machine.processors > 0 && machine.processor_copy_bytes_per_second == 0) {
    return absl::InvalidArgumentError(
        "processors copy on this machine; say how fast (processor_copy_bytes_per_second)");
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
