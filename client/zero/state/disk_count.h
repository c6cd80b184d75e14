// How many bytes all processes of this rank in its run have written to disk: a word in a chunk of
// host memory that each process claims of the one before it, also where it has no state on disk
// itself. Without a run there is no other process, and the word is this object's own.
#ifndef GEMINID_CLIENT_ZERO_STATE_DISK_COUNT_H_
#define GEMINID_CLIENT_ZERO_STATE_DISK_COUNT_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "geminid/session.h"

namespace geminid::zero {

class DiskCount {
 public:
  // `resume`: goes on from a predecessor's, if there is one. The session outlives it.
  static absl::StatusOr<std::shared_ptr<DiskCount>> Create(Session* session, bool resume);

  // A successor finds it from now on.
  absl::Status Share();
  std::atomic<uint64_t>& bytes() { return *bytes_; }
  // Its memory goes back to the session. Nothing else may be called after it.
  absl::Status Free();

 private:
  explicit DiskCount(Session* session) : session_(*session) {}
  void Take(const ChunkHandle& handle);

  Session& session_;
  std::optional<ChunkId> chunk_{};
  std::atomic<uint64_t> own_{0};
  std::atomic<uint64_t>* bytes_ = &own_;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_STATE_DISK_COUNT_H_
