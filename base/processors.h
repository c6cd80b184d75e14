// The processors that this process may compute on.
#ifndef GEMINID_BASE_PROCESSORS_H_
#define GEMINID_BASE_PROCESSORS_H_

#include <optional>
#include <string>
#include <vector>

namespace geminid::base {

// Those of the thread's affinity, in order; empty where the system does not say.
std::vector<int> AllowedProcessors();

// How many processors' time the process' control groups leave it: the least of its group and those
// above (cgroups(7): cpu.max, or cpu.cfs_quota_us of version 1). Unset where nothing limits it.
// `root` is where /proc and /sys are.
std::optional<double> ProcessorQuota(const std::string& root = "");

}  // namespace geminid::base

#endif  // GEMINID_BASE_PROCESSORS_H_
