// The arena of the host device: slabs, which are memfds, mapped side by side.
#ifndef GEMINID_CLIENT_DEVICE_HOST_HOST_ARENA_H_
#define GEMINID_CLIENT_DEVICE_HOST_HOST_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <map>

#include "absl/status/status.h"
#include "base/mapping.h"
#include "base/unique_fd.h"
#include "client/device/device.h"

namespace geminid::device {

// Not inherited by forked children. Not thread-safe.
//
// A strict one has its memory at addresses that only HostAddress tells: touching those that it
// gives out is a fault.
class HostArena {
 public:
  explicit HostArena(bool strict) : strict_(strict) {}

  absl::Status Reserve(uint64_t bytes);
  absl::Status Import(const base::UniqueFd& slab, uint64_t offset, uint64_t bytes);

  // Unmaps all slabs; the addresses stay reserved.
  absl::Status Release();

  std::byte* base() const { return reserved_.data(); }

  // Where the memory at an address of the arena is; other addresses are their own.
  template <typename T>
  T* HostAddress(T* address) const {
    const auto at = reinterpret_cast<uintptr_t>(address);
    const auto begin = reinterpret_cast<uintptr_t>(reserved_.data());
    if (!strict_ || at < begin || at - begin >= reserved_.bytes()) return address;
    return reinterpret_cast<T*>(memory_.data() + (at - begin));
  }

  MemoryInfo memory_info() const { return {reserved_.bytes(), imported_bytes_}; }

 private:
  absl::Status CheckRange(uint64_t offset, uint64_t bytes) const;

  const bool strict_;
  base::Reservation reserved_;
  base::Reservation memory_;  // of a strict arena: where the slabs are
  uint64_t imported_bytes_ = 0;
  std::map<uint64_t, uint64_t> slabs_;  // offset to bytes
};

}  // namespace geminid::device

#endif  // GEMINID_CLIENT_DEVICE_HOST_HOST_ARENA_H_
