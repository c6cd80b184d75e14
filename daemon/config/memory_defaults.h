// Default sizes of the memory that a daemon hands out, and the check that the machine has so much.
#ifndef GEMINID_DAEMON_CONFIG_MEMORY_DEFAULTS_H_
#define GEMINID_DAEMON_CONFIG_MEMORY_DEFAULTS_H_

#include <cstdint>
#include <limits>
#include <string>

#include "absl/status/status.h"
#include "daemon/config/settings.h"

namespace geminid::config {

struct MachineMemory {
  uint64_t total_bytes = std::numeric_limits<uint64_t>::max();      // RAM or the cgroup's limit
  uint64_t available_bytes = std::numeric_limits<uint64_t>::max();  // free now, without swapping
};

// By default all memory handed out is at most four fifths of the total, or the available memory if
// that is less. Three eighths of this budget are for one device, the rest for the host. If one of
// the two is configured, the other gets at most what is left of the budget.
//
// Fills in the sizes that `settings` lacks, in its texts and origins too. INVALID_ARGUMENT, with
// numbers, if all sizes together exceed the total or leave nothing for one that is not configured.
// The memory of host devices counts, because it is RAM too.
absl::Status FillInMemory(const MachineMemory& machine, Settings* settings);

// Why the last of the memory of `settings` cannot be handed out, as their sizes and the headroom
// that must stay free exceed the total. Empty: all of it can.
std::string LacksHeadroom(const MachineMemory& machine, const Settings& settings,
                          uint64_t headroom_bytes);

}  // namespace geminid::config

#endif  // GEMINID_DAEMON_CONFIG_MEMORY_DEFAULTS_H_
