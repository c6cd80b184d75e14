// The shared memory of one session: its state, client and commit segments, created, sealed, mapped
// and given their headers.
#ifndef GEMINID_DAEMON_MEMORY_SESSION_SEGMENTS_H_
#define GEMINID_DAEMON_MEMORY_SESSION_SEGMENTS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "base/mapping.h"
#include "base/unique_fd.h"
#include "proto/shm/commit_layout.h"
#include "proto/shm/session_layout.h"
#include "proto/shm/types.h"

namespace geminid::memory {

// Owns the memory and its descriptors. The client may write anything into the client and commit
// segments at any time: read each field once, then check it.
class SessionSegments {
 public:
  // `commit`: the previous client's, whose content stays; invalid: a new one. INVALID_ARGUMENT when
  // its size or seals are not what Create made.
  static absl::StatusOr<SessionSegments> Create(shm::SessionId session, uint64_t daemon_epoch,
                                                base::UniqueFd commit = base::UniqueFd());
  // Takes over the segments of a session from an earlier daemon; clients see the new epoch.
  // INVALID_ARGUMENT when their sizes or seals are not what Create made, FAILED_PRECONDITION when
  // they are of another layout, DATA_LOSS when they are another session's. On an error the three
  // descriptors are the caller's still.
  static absl::StatusOr<SessionSegments> Adopt(shm::SessionId session, base::UniqueFd&& state,
                                               base::UniqueFd&& client, base::UniqueFd&& commit,
                                               uint64_t daemon_epoch);
  // The most memory that the segments of a session take.
  static uint64_t Bytes();

  // For a session that has ended, whose client may still have the descriptors. Gives the pages back
  // to the kernel, except the state's first, which says that the session is gone. Pages that the
  // client touches again are its own.
  void Discard() const;

  shm::StateSegment* state() const {
    return reinterpret_cast<shm::StateSegment*>(state_map_.data());
  }
  shm::ClientSegment* client() const {
    return reinterpret_cast<shm::ClientSegment*>(client_map_.data());
  }

  // For the client: the state segment cannot be mapped writable.
  const base::UniqueFd& state_fd() const { return state_read_only_; }
  // For the next daemon, which writes it.
  const base::UniqueFd& writable_state_fd() const { return state_; }
  const base::UniqueFd& client_fd() const { return client_; }
  const base::UniqueFd& commit_fd() const { return commit_; }

 private:
  base::UniqueFd state_;
  base::UniqueFd state_read_only_;
  base::UniqueFd client_;
  base::UniqueFd commit_;
  base::Mapping state_map_;
  base::Mapping client_map_;
};

}  // namespace geminid::memory

#endif  // GEMINID_DAEMON_MEMORY_SESSION_SEGMENTS_H_
