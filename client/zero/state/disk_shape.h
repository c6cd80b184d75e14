// What of the optimizer's state is on disk, and how many bytes that takes there and in host memory.
// Pure.
#ifndef GEMINID_CLIENT_ZERO_STATE_DISK_SHAPE_H_
#define GEMINID_CLIENT_ZERO_STATE_DISK_SHAPE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "geminid/data_type.h"
#include "geminid/zero.h"
#include "proto/shm/session_layout.h"

namespace geminid::zero {

struct DiskStateOptions {
  StateDisk disk{};
  std::string name{};  // of the rank in its run; empty: it is of none
  bool kept = false;   // a successor may go on from the files
  // What was written is added to this, which outlives it. Null: nobody asks.
  std::atomic<uint64_t>* written = nullptr;
  absl::Duration timeout = absl::Minutes(5);
  // Of the session, which outlives this. Null: nobody asks.
  shm::ClientCounters* counters = nullptr;
};

// What of one extent is on disk; nothing without elements.
struct DiskShape {
  uint64_t elements = 0;
  DataType type = DataType::kBFloat16;       // of the weight
  DataType state_type = DataType::kFloat32;  // of the arrays
  size_t arrays = 0;

  // Each a multiple of what the widest loads of a processor want.
  uint64_t remainder_bytes() const;
  uint64_t array_bytes() const;
  uint64_t payload_bytes() const;
};

// By extent.
std::vector<uint64_t> PayloadsOf(const std::vector<DiskShape>& extents);

// Of the record that a successor reads, before a word for each extent.
inline constexpr uint64_t kDiskRecordBytes = 8;

// Host memory for state on disk: bytes by what they are for, in order. The first is the record that
// a successor reads, the second the window, then the places of updates.
std::vector<uint64_t> DiskMemoryBytes(const std::vector<DiskShape>& extents);

// Of all files together, one in each folder.
uint64_t DiskFileBytes(const std::vector<DiskShape>& extents, size_t folders);

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_STATE_DISK_SHAPE_H_
