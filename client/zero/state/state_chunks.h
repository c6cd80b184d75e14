// The session's chunks that the optimizer's state lies in: of which those in the arena are held
// there by leases, and can make way for other jobs.
#ifndef GEMINID_CLIENT_ZERO_STATE_STATE_CHUNKS_H_
#define GEMINID_CLIENT_ZERO_STATE_STATE_CHUNKS_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/zero/basics/compute.h"
#include "geminid/session.h"

namespace geminid::zero {

// Not thread-safe.
class StateChunks {
 public:
  // `timeout`: for each answer of the daemon.
  StateChunks(Session* session, absl::Duration timeout) : session_(*session), timeout_(timeout) {}

  // New ones, zeroed; or those that a predecessor left, nothing if there are none such.
  absl::StatusOr<std::vector<ChunkId>> Allocate(const std::vector<ChunkSpec>& specs);
  absl::StatusOr<std::optional<std::vector<ChunkId>>> Claim(const std::vector<ChunkSpec>& specs);
  const std::vector<ChunkId>& all() const { return all_; }
  Session& session() const { return session_; }

  // Some of them; all, after which nothing else may be called.
  absl::Status Free(const std::vector<ChunkId>& chunks);
  absl::Status FreeAll();
  // Requests are carried out in order: copies that have ended are settled when this returns.
  absl::Status WaitSettled();

  // --- in the arena ---

  // Zeroed, at its lowest free places. `keeps`: their contents, between steps.
  absl::Status Place(const std::vector<ChunkId>& chunks, const ComputePlace& place,
                     bool keeps = true);
  // Likewise, for copies and the trainer to fill again and again: never published, of no contents.
  absl::Status PlaceOpen(const std::vector<ChunkId>& chunks);
  // One that is there.
  absl::Status Hold(ChunkId chunk, bool keeps = true);
  // Copies homes there; the homes are the older copies from then on.
  absl::Status MoveIn(const std::vector<ChunkId>& chunks);
  uint64_t device_bytes() const { return device_bytes_; }
  // There is something whose contents are kept.
  bool any_kept() const {
    return std::ranges::any_of(held_, [](const Held& held) { return held.keeps; });
  }

  // --- other jobs' turn ---

  // All that lies in the arena leaves it, contents kept on the host, and comes back to the same
  // addresses. First room is made for what has no home: RESOURCE_EXHAUSTED, and nothing has moved.
  absl::Status PrepareToLeave();
  void StayAfterAll();
  absl::Status Leave();
  absl::Status Return();
  // Instead: it does not come back. Where each chunk's contents are.
  std::map<ChunkId, ChunkId> StayOnHost();

 private:
  // A chunk in the arena, and where it waits while it is not there.
  struct Held {
    ChunkId chunk = kNoChunk;
    std::optional<Lease> lease{};
    ChunkId refuge = kNoChunk;  // its home, or a chunk for it
    uint64_t offset = 0;
    bool keeps = true;
    bool open = false;  // not published: nobody can lease it
  };

  absl::Status TakeExtent(ChunkId chunk);
  void MakeHomeOlder(ChunkId chunk);

  Session& session_;
  const absl::Duration timeout_;
  std::vector<ChunkId> all_;
  std::vector<Held> held_;
  uint64_t device_bytes_ = 0;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_STATE_STATE_CHUNKS_H_
