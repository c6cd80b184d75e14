#include "daemon/planner/tiers/machine.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace geminid::planner {
namespace {

struct Rate {
  const char* name;
  double value;
  bool may_be_zero;
};

double Least(double own, double node, std::uint32_t ranks) {
  return node > 0 ? std::min(own, node / static_cast<double>(ranks)) : own;
}

}  // namespace

absl::Status ValidateMachine(const Machine& machine) {
  const Rate rates[] = {
      {"up_bytes_per_second", machine.up_bytes_per_second, false},
      {"down_bytes_per_second", machine.down_bytes_per_second, false},
      {"both_bytes_per_second", machine.both_bytes_per_second, true},
      {"node_up_bytes_per_second", machine.node_up_bytes_per_second, true},
      {"node_down_bytes_per_second", machine.node_down_bytes_per_second, true},
      {"latency_seconds", machine.latency_seconds, true},
      {"host_memory_bytes_per_second", machine.host_memory_bytes_per_second, false},
      {"cpu_update_share", machine.cpu_update_share, false},
      {"device_memory_bytes_per_second", machine.device_memory_bytes_per_second, false},
  };
  for (const Rate& rate : rates) {
    if (!std::isfinite(rate.value) || rate.value < 0 || (rate.value == 0 && !rate.may_be_zero)) {
      return absl::InvalidArgumentError(
          absl::StrCat("machine.", rate.name, " is ", rate.value, "; it must be finite and ",
                       rate.may_be_zero ? "not negative" : "positive"));
    }
  }
  if (machine.cpu_update_share > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "machine.cpu_update_share is ", machine.cpu_update_share, "; it is a share, at most 1"));
  }
  if (machine.ranks_on_node == 0 || machine.world_size < machine.ranks_on_node) {
    return absl::InvalidArgumentError(absl::StrCat("machine: ", machine.ranks_on_node,
                                                   " ranks on the node of ", machine.world_size,
                                                   " in all; 1 to world_size are possible"));
  }
  return absl::OkStatus();
}

double UpRate(const Machine& machine) {
  return Least(machine.up_bytes_per_second, machine.node_up_bytes_per_second,
               machine.ranks_on_node);
}

double DownRate(const Machine& machine) {
  return Least(machine.down_bytes_per_second, machine.node_down_bytes_per_second,
               machine.ranks_on_node);
}

double BothRate(const Machine& machine) {
  const double sum = UpRate(machine) + DownRate(machine);
  return machine.both_bytes_per_second > 0 ? std::min(sum, machine.both_bytes_per_second) : sum;
}

double HostUpdateRate(const Machine& machine, const UpdateTraffic& traffic) {
  return machine.cpu_update_share * machine.host_memory_bytes_per_second /
         (2 * traffic.state_bytes + 2 * traffic.gradient_bytes);
}

double DeviceUpdateRate(const Machine& machine, const UpdateTraffic& traffic) {
  return static_cast<double>(machine.ranks_on_node) * machine.device_memory_bytes_per_second /
         (2 * traffic.state_bytes + traffic.gradient_bytes);
}

}  // namespace geminid::planner
