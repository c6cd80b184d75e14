// A client's report of its state on disk (docs/disk.md), in reserved words of ClientCounters. They
// follow those of proto/shm/host_registration.h, and read as 0 if the client does not know them.
#ifndef GEMINID_PROTO_SHM_DISK_USE_H_
#define GEMINID_PROTO_SHM_DISK_USE_H_

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "proto/shm/session_layout.h"

namespace geminid::shm {

struct DiskUse {
  uint64_t file_bytes = 0;  // may fall
  uint64_t read_bytes = 0;  // both since the client attached
  uint64_t written_bytes = 0;
};

// More than any machine has, so that sums over all sessions stay far from an overflow.
inline constexpr uint64_t kMostFileBytes = uint64_t{1} << 50;

inline constexpr int kFirstWordOfDiskUse = 6;

// Any thread of the client may call it; of two calls at one time, the last one stays. A reader may
// see a mix of old and new words.
inline void StoreDiskUse(const DiskUse& use, ClientCounters* counters) {
  std::atomic<uint64_t>* const to = counters->reserved + kFirstWordOfDiskUse;
  to[0].store(use.file_bytes, std::memory_order_relaxed);
  to[1].store(use.read_bytes, std::memory_order_relaxed);
  to[2].store(use.written_bytes, std::memory_order_relaxed);
}

// A client may report anything, so file_bytes is cut to kMostFileBytes.
inline DiskUse LoadDiskUse(const ClientCounters& counters) {
  const std::atomic<uint64_t>* const from = counters.reserved + kFirstWordOfDiskUse;
  return {.file_bytes = std::min(from[0].load(std::memory_order_relaxed), kMostFileBytes),
          .read_bytes = from[1].load(std::memory_order_relaxed),
          .written_bytes = from[2].load(std::memory_order_relaxed)};
}

}  // namespace geminid::shm

#endif  // GEMINID_PROTO_SHM_DISK_USE_H_
