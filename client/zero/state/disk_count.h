// Counts the bytes that all processes of this rank in its run have written to disk. The count is a
// word in a chunk of host memory. Each process claims this chunk from the previous one, even if it
// has no state on disk itself. Without a run there is no other process, and the word is in this
// object.
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
  // `resume`: continues the count of a previous process, if there is one. The session outlives the
  // count.
  static absl::StatusOr<std::shared_ptr<DiskCount>> Create(Session* session, bool resume);

  // From now on a replacement process finds the count.
  absl::Status Share();
  std::atomic<uint64_t>& bytes() { return *bytes_; }
  // Returns the memory to the session. No other function may be called after this.
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
