// The session's chunks for the optimizer's state. Leases hold chunks in the arena, and these chunks
// can make way for other jobs.
#ifndef GEMINID_CLIENT_ZERO_STATE_STATE_CHUNKS_H_
#define GEMINID_CLIENT_ZERO_STATE_STATE_CHUNKS_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
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
  // `timeout` is for each answer of the daemon.
  StateChunks(Session* session, absl::Duration timeout) : session_(*session), timeout_(timeout) {}

  // Allocates zeroed chunks, or claims those of a previous process; nothing if there are none, and
  // then `*missing` says what there is.
  absl::StatusOr<std::vector<ChunkId>> Allocate(const std::vector<ChunkSpec>& specs);
  absl::StatusOr<std::optional<std::vector<ChunkId>>> Claim(const std::vector<ChunkSpec>& specs,
                                                            std::string* missing = nullptr);
  const std::vector<ChunkId>& all() const { return all_; }
  Session& session() const { return session_; }

  // Frees some chunks, or all of them. No other function may be called after FreeAll.
  absl::Status Free(const std::vector<ChunkId>& chunks);
  absl::Status FreeAll();
  // The session executes requests in order, so copies that have ended are settled when this
  // returns.
  absl::Status WaitSettled();

  // --- in the arena ---

  // Places zeroed chunks at the lowest free offsets. `keeps`: their contents matter between steps.
  absl::Status Place(const std::vector<ChunkId>& chunks, const ComputePlace& place,
                     bool keeps = true);
  // The same for chunks that copies and the trainer fill again and again. These chunks are never
  // published, and their contents do not matter between steps.
  absl::Status PlaceOpen(const std::vector<ChunkId>& chunks);
  // Holds a chunk that is already in the arena.
  absl::Status Hold(ChunkId chunk, bool keeps = true);
  // Copies chunks from their homes to the arena. From then on the homes have older copies.
  absl::Status MoveIn(const std::vector<ChunkId>& chunks);
  uint64_t device_bytes() const { return device_bytes_; }
  // Whether a held chunk has contents that matter between steps.
  bool any_kept() const {
    return std::ranges::any_of(held_, [](const ArenaChunk& held) { return held.keeps; });
  }

  // --- other jobs' turn ---

  // Leave() moves all held chunks out of the arena, with their contents on the host. Return()
  // brings them back to the same addresses. Before that, PrepareToLeave() allocates swap chunks,
  // host memory for chunks without a home: RESOURCE_EXHAUSTED if there is none, and nothing has
  // moved. CancelLeave() cancels it.
  //
  // A chunk that is in the arena has the newest contents. The others are in their swap chunks,
  // which a note in host memory says are whole: the note is set before the first chunk leaves the
  // arena, and cleared after the last one is back. So this process may die at any instruction.
  absl::Status PrepareToLeave();
  void CancelLeave();
  absl::Status Leave();
  absl::Status Return();
  // Instead of Return(): the chunks stay on the host. Returns the chunk with each one's contents.
  std::map<ChunkId, ChunkId> StayOnHost();

  // --- what a previous process left ---

  // Claims the swap chunks of these chunks, all that had no home, if there are any.
  absl::Status ClaimSwapChunks(const std::vector<ChunkId>& chunks);
  // The chunk with the contents of `chunk`: itself or its swap chunk. kNoChunk: they are lost.
  ChunkId ContentsOf(ChunkId chunk) const;
  // Holds these chunks, first copying contents in swap chunks back to the arena. DATA_LOSS: there
  // are chunks without contents. Then frees the swap chunks.
  absl::Status HoldClaimed(const std::vector<ChunkId>& chunks);
  absl::Status FreeSwapChunks();

 private:
  // A chunk in the arena, and its place on the host while it is not there.
  struct ArenaChunk {
    ChunkId chunk = kNoChunk;
    std::optional<Lease> lease{};
    ChunkId swap_chunk = kNoChunk;  // its home, or a chunk that serves as one
    uint64_t offset = 0;
    bool keeps = true;
    bool open = false;  // not published, so nobody can lease it
  };

  // One allocation. The last chunk has the note.
  struct SwapChunks {
    std::vector<ChunkId> chunks{};
    std::map<ChunkId, ChunkId> of{};
  };

  absl::Status TakeExtent(ChunkId chunk);
  std::vector<ChunkSpec> SwapChunkSpecs(const std::vector<ChunkId>& chunks) const;
  void TakeSwapChunks(const std::vector<ChunkId>& chunks, std::vector<ChunkId> swap_chunks);
  std::atomic<uint64_t>* NoteOfSwapChunks() const;
  void MakeHomeOlder(ChunkId chunk);

  Session& session_;
  const absl::Duration timeout_;
  std::vector<ChunkId> all_;
  std::vector<ArenaChunk> held_;
  SwapChunks swap_chunks_;
  uint64_t device_bytes_ = 0;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_STATE_STATE_CHUNKS_H_
