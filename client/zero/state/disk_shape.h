// The part of the optimizer's state that is on disk, and the bytes that it takes there and in host
// memory. Pure.
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
  std::string name{};  // of the rank in its run; empty: there is no run
  bool kept = false;   // a replacement process may resume from the files
  size_t spares = 0;  // the last of the extents, of which a step writes none
  // A count of the bytes written, which outlives this. Null: they are not counted.
  std::atomic<uint64_t>* written = nullptr;
  absl::Duration timeout = absl::Minutes(5);
  // The session's counters, which outlive this. Null: there are none.
  shm::ClientCounters* counters = nullptr;
};

// The part of one extent that is on disk. Without elements nothing is.
struct DiskShape {
  uint64_t elements = 0;
  DataType type = DataType::kBFloat16;       // of the weight
  DataType state_type = DataType::kFloat32;  // of the arrays
  size_t arrays = 0;

  // Each is a multiple of the width of a processor's widest loads.
  uint64_t remainder_bytes() const;
  uint64_t array_bytes() const;
  uint64_t payload_bytes() const;
};

// The payload bytes of each extent.
std::vector<uint64_t> PayloadsOf(const std::vector<DiskShape>& extents);

// The bytes of the record that a replacement process reads. A word for each extent follows it.
inline constexpr uint64_t kDiskRecordBytes = 8;

// The bytes of host memory for state on disk, by purpose and in this order: the record that a
// replacement process reads, the window, then the places of updates.
std::vector<uint64_t> DiskMemoryBytes(const std::vector<DiskShape>& extents);

// The bytes of all files together. Each folder has one file.
uint64_t DiskFileBytes(const std::vector<DiskShape>& extents, size_t folders);

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_STATE_DISK_SHAPE_H_
