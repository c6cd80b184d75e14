// How much memory a daemon hands out, where the configuration does not say it, and whether it can.
#ifndef GEMINID_DAEMON_CONFIG_MEMORY_DEFAULTS_H_
#define GEMINID_DAEMON_CONFIG_MEMORY_DEFAULTS_H_

#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "daemon/config/settings.h"

namespace geminid::config {

struct MachineMemory {
  uint64_t total_bytes = std::numeric_limits<uint64_t>::max();      // the RAM, or a cgroup's limit
  uint64_t available_bytes = std::numeric_limits<uint64_t>::max();  // now, without swapping
};

// What all limits that are not configured may come to: four fifths of the total, or what is
// available if that is less. Of it, three eighths are for one device and the rest for the host;
// where one of the two is configured, the other gets at most what that leaves.
//
// Fills in what `settings` lacks, in its texts and origins too. INVALID_ARGUMENT with numbers if
// the limits together are more than the total, or leave nothing for one that is not configured:
// memory of host devices is RAM as well.
absl::Status FillInMemory(const MachineMemory& machine, Settings* settings);

}  // namespace geminid::config

#endif  // GEMINID_DAEMON_CONFIG_MEMORY_DEFAULTS_H_
