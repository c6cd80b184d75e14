// Runs one probe in a process group of its own, with a time limit: whatever the probe does, the
// caller continues.
#ifndef GEMINID_TOOLS_GPU_VERIFY_ISOLATE_H_
#define GEMINID_TOOLS_GPU_VERIFY_ISOLATE_H_

#include <functional>
#include <string>

#include "tools/gpu-verify/outcome.h"

namespace geminid::gpu_verify {

using Progress = std::function<void(const std::string&)>;

// Forks, runs `body` in the child, and returns its outcome. The body's Progress arrives at
// `progress` in this process. An exception, a crash and a missed limit are outcomes too: fail, with
// what happened as the reason. Before the return every process of the group is killed and reaped,
// orphans included: the caller becomes the reaper of its descendants. Blocks for up to the limit,
// and 10 s more for processes that the kernel does not let end.
Outcome RunIsolated(const std::function<Outcome(const Progress&)>& body, double limit_seconds,
                    const Progress& progress);

}  // namespace geminid::gpu_verify

#endif  // GEMINID_TOOLS_GPU_VERIFY_ISOLATE_H_
