// The device memory of one session on the host device: slabs of at most 1 GiB, each a sealed memfd.
#ifndef GEMINID_DAEMON_MEMORY_DEVICE_ARENA_H_
#define GEMINID_DAEMON_MEMORY_DEVICE_ARENA_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/memory/host_pool.h"

namespace geminid::memory {

inline constexpr uint64_t kMaxSlabBytes = uint64_t{1} << 30;

// The sizes of the slabs of an arena of `bytes` whole pages, in order.
std::vector<uint64_t> SlabSizes(uint64_t bytes, uint64_t max_slab_bytes = kMaxSlabBytes);

class DeviceArena {
 public:
  // All slabs or none, each with `options` but for its name and size, which are the arena's here;
  // backed by memory as HostPool's are, with the same errors.
  static absl::StatusOr<DeviceArena> Create(const PoolOptions& options, const os::Machine& machine);

  const std::vector<HostPool>& slabs() const { return slabs_; }
  uint64_t bytes() const { return bytes_; }

 private:
  std::vector<HostPool> slabs_;
  uint64_t bytes_ = 0;
};

}  // namespace geminid::memory

#endif  // GEMINID_DAEMON_MEMORY_DEVICE_ARENA_H_
