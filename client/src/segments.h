// The three shared segments of a session, mapped and checked.
#ifndef GEMINID_CLIENT_SRC_SEGMENTS_H_
#define GEMINID_CLIENT_SRC_SEGMENTS_H_

#include "absl/status/statusor.h"
#include "base/mapping.h"
#include "base/unique_fd.h"
#include "proto/shm/commit_layout.h"
#include "proto/shm/session_layout.h"

namespace geminid {

class Segments {
 public:
  Segments() = default;

  // FAILED_PRECONDITION if a header has another layout version.
  static absl::StatusOr<Segments> Map(const base::UniqueFd& state, const base::UniqueFd& client,
                                      const base::UniqueFd& commit);

  // Const, because the ring's reader only reads the daemon's side, and because the segment is
  // mapped read-only.
  const shm::StateSegment* state() const {
    return reinterpret_cast<const shm::StateSegment*>(state_.data());
  }
  shm::ClientSegment* client() const {
    return reinterpret_cast<shm::ClientSegment*>(client_.data());
  }
  shm::CommitSegment* commit() const {
    return reinterpret_cast<shm::CommitSegment*>(commit_.data());
  }

 private:
  base::Mapping state_;
  base::Mapping client_;
  base::Mapping commit_;
};

}  // namespace geminid

#endif  // GEMINID_CLIENT_SRC_SEGMENTS_H_
