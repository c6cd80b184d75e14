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

// Of every GPU whose driver has its memory in pages of 2 MiB, all so far; an agent whose driver
// wants more is refused when it says hello.
inline constexpr uint64_t kGranularityBytes = uint64_t{2} << 20;

// A device of the node. One that is to be a GPU and has none is kept, with no memory, so that the
// others keep their numbers; `why_not` says what is missing.
struct NodeDevice {
  config::DeviceSetting setting{};  // with its memory known
  std::optional<agent::GpuFacts> gpu{};
  std::string why_not{};
};

// By the settings, in their order: GPUs that are named first, the others in the order of `found`;
// all GPUs, where that is wanted, after the rest. One without a size gets nine tenths of its
// memory, or what is free where that is less: the rest is for the contexts of its processes.
//
// `found`: what the probe says, or why it says nothing. FAILED_PRECONDITION where a GPU is too
// small or wanted twice, or where no device at all is left.
absl::StatusOr<std::vector<NodeDevice>> AssignGpus(
    const std::vector<config::DeviceSetting>& settings,
    const absl::StatusOr<std::vector<agent::GpuFacts>>& found);

// Whether a driver is needed to know.
bool WantsGpus(const std::vector<config::DeviceSetting>& settings);

}  // namespace geminid::gpus

#endif  // GEMINID_DAEMON_GPUS_ASSIGN_H_
