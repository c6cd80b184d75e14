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
class HostArena {
 public:
  absl::Status Reserve(uint64_t bytes);
  absl::Status Import(const base::UniqueFd& slab, uint64_t offset, uint64_t bytes);

  std::byte* base() const { return reserved_.data(); }
  MemoryInfo memory_info() const { return {reserved_.bytes(), imported_bytes_}; }

 private:
  absl::Status CheckRange(uint64_t offset, uint64_t bytes) const;

  base::Reservation reserved_;
  uint64_t imported_bytes_ = 0;
  std::map<uint64_t, uint64_t> slabs_;  // offset to bytes
};

}  // namespace geminid::device

#endif  // GEMINID_CLIENT_DEVICE_HOST_HOST_ARENA_H_
