// The device memory of one session on the host device: a few slabs, each a sealed memfd.
#ifndef GEMINID_DAEMON_MEMORY_DEVICE_ARENA_H_
#define GEMINID_DAEMON_MEMORY_DEVICE_ARENA_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/memory/host_pool.h"

namespace geminid::memory {

// Each slab is a descriptor here, in the client, and on its way between the two.
inline constexpr uint64_t kMaxSlabs = 64;
inline constexpr uint64_t kSlabUnitBytes = uint64_t{1} << 30;

// How large the slabs of an arena of `bytes` are, but for the last: the fewest units of which
// kMaxSlabs are enough.
uint64_t SlabBytes(uint64_t bytes);
// The sizes of the slabs, in order.
std::vector<uint64_t> SlabSizes(uint64_t bytes, uint64_t slab_bytes);

class DeviceArena {
 public:
  // All slabs or none, each with `options` but for its name and size, which are the arena's here;
  // backed by memory as HostPool's are, with the same errors.
  static absl::StatusOr<DeviceArena> Create(const PoolOptions& options, const os::Machine& machine);

  // As HostPool's: of all slabs, whatever the first error is.
  absl::Status Revoke() const;

  const std::vector<HostPool>& slabs() const { return slabs_; }
  uint64_t bytes() const { return bytes_; }

 private:
  std::vector<HostPool> slabs_;
  uint64_t bytes_ = 0;
};

}  // namespace geminid::memory

#endif  // GEMINID_DAEMON_MEMORY_DEVICE_ARENA_H_
