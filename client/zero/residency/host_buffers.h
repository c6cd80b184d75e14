// Host memory for chunks that must leave the device for a while, contents kept. Taken when the
// first one must, from the daemon, which charges it to the session; given back when nobody needs
// it.
#ifndef GEMINID_CLIENT_ZERO_RESIDENCY_HOST_BUFFERS_H_
#define GEMINID_CLIENT_ZERO_RESIDENCY_HOST_BUFFERS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "geminid/session.h"

namespace geminid::zero {

// Not thread-safe.
class HostBuffers {
 public:
  explicit HostBuffers(Session* session) : session_(session) {}

  // The chunk's own from now on; the same one if it has one already. Blocks for a call to the
  // daemon when there is none to spare.
  absl::StatusOr<ChunkHandle> Take(uint32_t chunk, uint64_t bytes);
  // Of a chunk that has one.
  ChunkHandle Of(uint32_t chunk) const { return taken_.at(chunk); }
  void GiveBack(uint32_t chunk);
  // Everything that is not taken goes back to the daemon.
  absl::Status FreeSpare();

 private:
  Session* const session_;
  std::map<uint32_t, ChunkHandle> taken_;  // by chunk
  std::vector<ChunkHandle> spare_;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_RESIDENCY_HOST_BUFFERS_H_
