// Which GPU is which device of the node. Pure.
#ifndef GEMINID_DAEMON_GPUS_ASSIGN_H_
#define GEMINID_DAEMON_GPUS_ASSIGN_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/agent/messages.h"
#include "daemon/config/device_list.h"

namespace geminid::gpus {

// The granularity of every GPU whose driver uses pages of 2 MiB, as all do so far. An agent whose
// driver needs more is refused when it says hello.
inline constexpr uint64_t kGranularityBytes = uint64_t{2} << 20;

// A device of the node. A device whose GPU is missing stays, without memory, so that the others
// keep their numbers; `why_not` says what is missing.
struct NodeDevice {
  config::DeviceSetting setting{};  // with its memory known
  std::optional<agent::GpuFacts> gpu{};
  std::string why_not{};
};

// Returns devices in the order of the settings. Named GPUs are assigned first, then others in the
// order of `found`; with `all_gpus`, the rest are added at the end. A GPU without a size gets nine
// tenths of its memory, or its free memory if less: the rest is for its processes' contexts.
//
// `found`: the GPUs, or why the probe found none. FAILED_PRECONDITION: a GPU is too small or wanted
// twice, or no device at all is left.
absl::StatusOr<std::vector<NodeDevice>> AssignGpus(
    const std::vector<config::DeviceSetting>& settings,
    const absl::StatusOr<std::vector<agent::GpuFacts>>& found);

// Whether a device is to be a GPU, so that a driver must be asked.
bool WantsGpus(const std::vector<config::DeviceSetting>& settings);

}  // namespace geminid::gpus

#endif  // GEMINID_DAEMON_GPUS_ASSIGN_H_
