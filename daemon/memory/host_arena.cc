#include "daemon/memory/host_arena.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace geminid::memory {

absl::StatusOr<std::unique_ptr<HostArena>> HostArena::Create(const PoolOptions& options,
                                                             const os::Machine& machine) {
  auto arena = std::make_unique<HostArena>();
  for (const uint64_t slab_bytes : SlabSizes(options.bytes, SlabBytes(options.bytes))) {
    PoolOptions of_slab = options;
    of_slab.name = absl::StrCat(options.name, "-slab", arena->slabs_.size());
    of_slab.bytes = slab_bytes;
    absl::StatusOr<HostPool> slab = HostPool::Create(of_slab, machine);
    if (!slab.ok()) return slab.status();
    arena->slabs_.push_back(*std::move(slab));
  }
  return arena;
}

std::unique_ptr<HostArena> HostArena::Adopt(std::vector<HostPool> slabs) {
  auto arena = std::make_unique<HostArena>();
  arena->slabs_ = std::move(slabs);
  return arena;
}

std::vector<DeviceArena::Slab> HostArena::slabs() const {
  std::vector<Slab> slabs;
  for (const HostPool& slab : slabs_) slabs.push_back({&slab.fd(), slab.bytes()});
  return slabs;
}

double HostArena::populate_seconds() const {
  double seconds = 0;
  for (const HostPool& slab : slabs_) seconds += slab.populate_seconds();
  return seconds;
}

void HostArena::Revoke(base::UniqueFd /*holder*/, std::function<void(absl::Status)> done) {
  absl::Status status;
  for (const HostPool& slab : slabs_) status.Update(slab.Revoke());
  done(status);
}

}  // namespace geminid::memory
