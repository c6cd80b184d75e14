// The memory that the daemon leaves to others.
#ifndef GEMINID_DAEMON_MEMORY_HEADROOM_H_
#define GEMINID_DAEMON_MEMORY_HEADROOM_H_

#include <cstdint>

namespace geminid::memory {

// Left to the rest of the machine, or of the cgroup, when a pool takes all that is available.
inline constexpr uint64_t kHeadroomBytes = uint64_t{64} << 20;

}  // namespace geminid::memory

#endif  // GEMINID_DAEMON_MEMORY_HEADROOM_H_
