// The processors that this process may use.
#ifndef GEMINID_BASE_PROCESSORS_H_
#define GEMINID_BASE_PROCESSORS_H_

#include <optional>
#include <string>
#include <vector>

namespace geminid::base {

// The processors in the thread's affinity, in order; empty if the system does not tell.
std::vector<int> AllowedProcessors();

// The limit of the process's cgroups, in processors: the least of its group and the groups above
// (cgroups(7): cpu.max, or cpu.cfs_quota_us in version 1). nullopt: no limit. `root`: where /proc
// and /sys are.
std::optional<double> ProcessorQuota(const std::string& root = "");

}  // namespace geminid::base

#endif  // GEMINID_BASE_PROCESSORS_H_
