// The arena of a host device: each slab is a sealed memfd.
#ifndef GEMINID_DAEMON_MEMORY_HOST_ARENA_H_
#define GEMINID_DAEMON_MEMORY_HOST_ARENA_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/memory/device_arena.h"
#include "daemon/memory/host_pool.h"

namespace geminid::memory {

class HostArena : public DeviceArena {
 public:
  // Makes all slabs or none. `options` has the arena's name and size; each slab gets its own. Slabs
  // are backed by memory as a HostPool is, with the same errors.
  static absl::StatusOr<std::unique_ptr<HostArena>> Create(const PoolOptions& options,
                                                           const os::Machine& machine);

  // An arena of slabs that an earlier daemon made, in order.
  static std::unique_ptr<HostArena> Adopt(std::vector<HostPool> slabs);

  std::vector<Slab> slabs() const override;
  double populate_seconds() const override;

  // Revokes all slabs at once, as HostPool does, even if the client lives or a slab fails.
  void Revoke(base::UniqueFd holder, std::function<void(absl::Status)> done) override;

 private:
  std::vector<HostPool> slabs_;
};

}  // namespace geminid::memory

#endif  // GEMINID_DAEMON_MEMORY_HOST_ARENA_H_
