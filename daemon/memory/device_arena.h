// The device memory of one session: a few slabs, each of which the client gets as a descriptor.
#ifndef GEMINID_DAEMON_MEMORY_DEVICE_ARENA_H_
#define GEMINID_DAEMON_MEMORY_DEVICE_ARENA_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "base/unique_fd.h"

namespace geminid::memory {

// Each slab is a descriptor here, in the client, and on its way between the two.
inline constexpr uint64_t kMaxSlabs = 64;
inline constexpr uint64_t kSlabUnitBytes = uint64_t{1} << 30;

// How large the slabs of an arena of `bytes` are, but for the last: the fewest units of which
// kMaxSlabs are enough. 8 GiB are 8 slabs, 100 GiB are 50, 141 GiB are 47.
uint64_t SlabBytes(uint64_t bytes);
// The sizes of the slabs, in order: they add up to `bytes`, so nothing is wasted but what rounds an
// arena up to its device's granularity.
std::vector<uint64_t> SlabSizes(uint64_t bytes, uint64_t slab_bytes);

// Belongs to one session. What implements it says where the memory is.
class DeviceArena {
 public:
  virtual ~DeviceArena() = default;

  struct Slab {
    const base::UniqueFd* fd;  // the arena's
    uint64_t bytes;
  };
  // In order, one after another in the arena.
  virtual std::vector<Slab> slabs() const = 0;
  // How long it took to make them.
  virtual double populate_seconds() const = 0;

  // Takes the memory back, whoever still has descriptors or mappings of it, or waits until nobody
  // has. `holder`: a pidfd of the client, where its memory may be in use until its process has
  // ended; invalid: not so. `done` is called once, with OK when the memory is the device's again;
  // before this returns or later, on any thread, and not after the arena's device is gone. The
  // arena may be destroyed before.
  virtual void Revoke(base::UniqueFd holder, std::function<void(absl::Status)> done) = 0;
};

}  // namespace geminid::memory

#endif  // GEMINID_DAEMON_MEMORY_DEVICE_ARENA_H_
