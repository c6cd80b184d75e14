// Host memory of the session for transfers between ranks. The daemon allocates it and charges it to
// the session. It is for buffers whose size changes from step to step, for buffers that outlive a
// step, and for ranks whose workspace is on a GPU.
#ifndef GEMINID_TRAINING_RANKS_SESSION_MEMORY_H_
#define GEMINID_TRAINING_RANKS_SESSION_MEMORY_H_

#include <cstddef>
#include <mutex>
#include <vector>

#include "absl/status/statusor.h"
#include "geminid/session.h"
#include "training/nn/parallel/memory.h"

namespace geminid::trainer {

// Thread-safe. Released blocks stay here and are used again, so that no step calls the daemon. A
// spare block that is too small is freed before a larger one is allocated.
class SessionMemory final : public collectives::Memory {
 public:
  // `session` outlives it.
  explicit SessionMemory(Session& session) : session_(session) {}
  SessionMemory(const SessionMemory&) = delete;
  SessionMemory& operator=(const SessionMemory&) = delete;
  // Frees all memory. All blocks have been released before.
  ~SessionMemory() override;

 private:
  absl::StatusOr<Block> Take(size_t bytes) override;
  absl::StatusOr<ChunkHandle> Obtain(size_t bytes);
  void GiveBack(const ChunkHandle& chunk);

  Session& session_;
  std::mutex mutex_;
  std::vector<ChunkHandle> spare_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_RANKS_SESSION_MEMORY_H_
