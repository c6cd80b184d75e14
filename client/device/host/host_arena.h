// The arena of the host device: slabs, which are memfds, mapped side by side; and views, which map
// parts of it a second time.
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

// Not inherited by forked children. Not thread-safe, except for views at different addresses.
//
// A strict arena has its memory at addresses that only HostAddress returns. A touch of base() or
// views() is a fault.
class HostArena {
 public:
  explicit HostArena(bool strict) : strict_(strict) {}

  absl::Status Reserve(uint64_t bytes);
  absl::Status Import(const base::UniqueFd& slab, uint64_t offset, uint64_t bytes);

  // Unmaps all slabs; the addresses stay reserved.
  absl::Status Release();

  std::byte* base() const { return arena_.given.data(); }

  // See Device.
  absl::Status ReserveViews(uint64_t bytes);
  void ReleaseViews();
  std::byte* views() const { return views_.given.data(); }
  absl::Status MapView(uint64_t at, uint64_t offset, uint64_t bytes);
  absl::Status UnmapView(uint64_t at, uint64_t bytes);
  absl::Status FillView(uint64_t at, uint64_t bytes);

  // The memory's real address for an address of the arena or a view. Others are returned unchanged.
  template <typename T>
  T* HostAddress(T* address) const {
    if (!strict_) return address;
    for (const Range* range : {&arena_, &views_}) {
      const auto at = reinterpret_cast<uintptr_t>(address);
      const auto begin = reinterpret_cast<uintptr_t>(range->given.data());
      if (at < begin || at - begin >= range->given.bytes()) continue;
      return reinterpret_cast<T*>(range->strict.data() + (at - begin));
    }
    return address;
  }

  MemoryInfo memory_info() const { return {arena_.given.bytes(), imported_bytes_}; }

 private:
  struct Range {
    base::Reservation given;   // the addresses that callers get
    base::Reservation strict;  // in a strict arena, the addresses of its memory
  };
  absl::StatusOr<Range> MakeRange(uint64_t bytes) const;
  base::Reservation& MemoryOf(Range* range) const { return strict_ ? range->strict : range->given; }
  absl::Status CheckRange(uint64_t offset, uint64_t bytes) const;

  const bool strict_;
  Range arena_;
  Range views_;
  uint64_t imported_bytes_ = 0;
  std::map<uint64_t, uint64_t> slabs_;  // by offset: bytes
};

}  // namespace geminid::device

#endif  // GEMINID_CLIENT_DEVICE_HOST_HOST_ARENA_H_
