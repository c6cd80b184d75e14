#include "daemon/planner/tiers/update.h"

#include <algorithm>

namespace geminid::planner {

UpdateCost CostOfUpdate(const Machine& machine, const OptimizerItem& item,
                        std::uint64_t weight_transfer_bytes, OptimizerPlace place) {
  UpdateCost cost;
  if (item.parameters == 0) return cost;
  const auto ranks = static_cast<double>(machine.ranks_on_node);
  const auto state = static_cast<double>(item.state_bytes());
  const auto gradient = static_cast<double>(item.gradient_bytes);
  const auto weight = static_cast<double>(weight_transfer_bytes);
  const double memory_rate = machine.host_memory_bytes_per_second / ranks;
  switch (place) {
    case OptimizerPlace::kHost:
      // As in HostUpdateRate: the kernel's measured rate includes the copy of the gradient.
      cost.cpu = (2 * state + 2 * gradient) / (machine.cpu_update_share * memory_rate);
      cost.memory = (2 * state + 2 * gradient + weight) / memory_rate;
      cost.up = weight > 0 ? machine.latency_seconds + weight / UpRate(machine) : 0;
      break;
    case OptimizerPlace::kStreamed:
      cost.memory = 2 * state / memory_rate;
      cost.up = machine.latency_seconds + state / UpRate(machine);
      cost.down = machine.latency_seconds + state / DownRate(machine);
      cost.device = (2 * state + gradient) / machine.device_memory_bytes_per_second;
      break;
    case OptimizerPlace::kDevice:
      cost.device = (2 * state + gradient) / machine.device_memory_bytes_per_second;
      break;
  }
  return cost;
}

std::vector<double> FinishUpdates(const std::vector<UpdateJob>& jobs) {
  double cpu = 0;  // each resource is free from this time on
  double memory = 0;
  double up = 0;
  double down = 0;
  double device = 0;
  std::vector<double> returned;  // of the streamed jobs, in order
  std::vector<double> finish;
  finish.reserve(jobs.size());
  for (const UpdateJob& job : jobs) {
    if (job.place != OptimizerPlace::kDevice) memory += job.cost.memory;
    if (job.place == OptimizerPlace::kHost) {
      cpu += job.cost.cpu;
      up = std::max({up, cpu, memory - job.cost.up}) + job.cost.up;
      finish.push_back(up);
      continue;
    }
    double ready = 0;
    if (job.place == OptimizerPlace::kStreamed) {
      if (returned.size() >= kStreamBuffers) {
        ready = std::max(ready, returned[returned.size() - kStreamBuffers]);
      }
      up = std::max(up, ready) + job.cost.up;
      ready = std::max(up, memory);
    }
    device = std::max(device, ready) + job.cost.device;
    finish.push_back(device);
    if (job.place == OptimizerPlace::kStreamed) {
      down = std::max(down, device) + job.cost.down;
      returned.push_back(down);
    }
  }
  return finish;
}

double ExposedSeconds(const std::vector<UpdateJob>& jobs) {
  const std::vector<double> finish = FinishUpdates(jobs);
  double exposed = 0;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    exposed = std::max(exposed, finish[i] - jobs[i].needed_at);
  }
  return exposed;
}

}  // namespace geminid::planner
