// Ranges of host memory, within chunks that are allocated when they are needed, and reused.
#ifndef GEMINID_CLIENT_ZERO_RESIDENCY_HOME_RANGES_H_
#define GEMINID_CLIENT_ZERO_RESIDENCY_HOME_RANGES_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "geminid/session.h"

namespace geminid::zero {

// Thread-safe. The destructor frees the chunks.
class HomeRanges {
 public:
  struct Range {
    ChunkId chunk = kNoChunk;
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };

  // `name`: of the chunks, for people. `session` outlives this object.
  HomeRanges(Session* session, std::string name, uint64_t chunk_bytes);
  ~HomeRanges();
  HomeRanges(const HomeRanges&) = delete;
  HomeRanges& operator=(const HomeRanges&) = delete;

  // Takes `bytes`, above 0, as ranges of `range_bytes` and one for the rest: the lowest free ones.
  // Blocks while it allocates a chunk. RESOURCE_EXHAUSTED in the daemon's words: nothing changed.
  absl::StatusOr<std::vector<Range>> Take(uint64_t bytes, uint64_t range_bytes);
  // Returns a range. Never waits for the daemon.
  void Give(const Range& range);

  // The bytes of all chunks.
  uint64_t bytes() const;

 private:
  struct Slab {
    ChunkId chunk = kNoChunk;
    std::map<uint64_t, uint64_t> free;  // offset to bytes; adjacent free ranges are merged
  };

  // Empty if there is not enough free memory.
  std::vector<Range> TakeLocked(uint64_t bytes, uint64_t range_bytes);
  std::optional<Range> TakeOneLocked(uint64_t bytes);
  void GiveLocked(const Range& range);

  Session& session_;
  const std::string name_;
  const uint64_t chunk_bytes_;
  mutable std::mutex mutex_;
  std::vector<Slab> slabs_;  // guarded by mutex_
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_RESIDENCY_HOME_RANGES_H_
