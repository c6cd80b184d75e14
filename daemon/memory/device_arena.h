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

// The size of the slabs of an arena of `bytes`, except the last: the fewest units so that kMaxSlabs
// are enough. 8 GiB are 8 slabs, 100 GiB are 50, 141 GiB are 47.
uint64_t SlabBytes(uint64_t bytes);
// The sizes of the slabs, in order. They add up to `bytes`, so memory is wasted only by rounding an
// arena up to its device's granularity.
std::vector<uint64_t> SlabSizes(uint64_t bytes, uint64_t slab_bytes);

// Belongs to one session. The implementation decides where the memory is.
class DeviceArena {
 public:
  virtual ~DeviceArena() = default;

  struct Slab {
    const base::UniqueFd* fd;  // the arena's
    uint64_t bytes;
  };
  // In order, one after another in the arena.
  virtual std::vector<Slab> slabs() const = 0;
  // How long it took to make the slabs.
  virtual double populate_seconds() const = 0;

  // Takes the memory back, even if processes have descriptors or mappings of it, or waits until
  // none has. `holder`: a pidfd of the client, if its process may use the memory until it ends;
  // else invalid. `done` is called once, with OK when the memory is the device's again: before this
  // returns or later, on any thread, but not after the arena's device is gone. The arena may be
  // destroyed before.
  virtual void Revoke(base::UniqueFd holder, std::function<void(absl::Status)> done) = 0;
};

}  // namespace geminid::memory

#endif  // GEMINID_DAEMON_MEMORY_DEVICE_ARENA_H_
