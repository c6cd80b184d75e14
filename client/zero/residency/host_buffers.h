// Host memory that stores the contents of chunks that must leave the device for a while. Allocated
// from the daemon when the first chunk needs it, and charged to the session. Freed when no chunk
// needs it any more.
#ifndef GEMINID_CLIENT_ZERO_RESIDENCY_HOST_BUFFERS_H_
#define GEMINID_CLIENT_ZERO_RESIDENCY_HOST_BUFFERS_H_

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "geminid/session.h"

namespace geminid::zero {

// Not thread-safe.
class HostBuffers {
 public:
  explicit HostBuffers(Session* session) : session_(session) {}

  // Gives the chunk a buffer, or returns the one that it has. Blocks for a call to the daemon if no
  // buffer is spare.
  absl::StatusOr<ChunkHandle> Take(uint32_t chunk, uint64_t bytes);
  bool Has(uint32_t chunk) const { return taken_.contains(chunk); }
  // The buffer of a chunk that has one.
  ChunkHandle Of(uint32_t chunk) const { return taken_.at(chunk); }
  void GiveBack(uint32_t chunk);
  // Frees the chunk's buffer at once, for others to allocate.
  absl::Status Free(uint32_t chunk);
  // Frees all buffers that no chunk has.
  absl::Status FreeSpare();
  // All buffers, in no order.
  std::vector<ChunkId> All() const;

 private:
  Session* const session_;
  std::map<uint32_t, ChunkHandle> taken_;  // by chunk
  std::vector<ChunkHandle> spare_;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_RESIDENCY_HOST_BUFFERS_H_
