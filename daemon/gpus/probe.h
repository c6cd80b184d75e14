// Lists the machine's GPUs by a process that loads the driver, so that the daemon need not.
#ifndef GEMINID_DAEMON_GPUS_PROBE_H_
#define GEMINID_DAEMON_GPUS_PROBE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "daemon/agent/messages.h"

namespace geminid::gpus {

// In the order of NVML, which is that of the PCI addresses; a GPU in MIG mode is listed as its
// instances. An error says why there are none: no driver, no program, or DEADLINE_EXCEEDED where
// the driver hangs. Blocks as long as the driver takes, a second or two per GPU, and at most
// `patience`.
absl::StatusOr<std::vector<agent::GpuFacts>> FindGpus(const std::string& program,
                                                      absl::Duration patience);

}  // namespace geminid::gpus

#endif  // GEMINID_DAEMON_GPUS_PROBE_H_
