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

  // FAILED_PRECONDITION when their headers are of another layout.
  static absl::StatusOr<Segments> Map(const base::UniqueFd& state, const base::UniqueFd& client,
                                      const base::UniqueFd& commit);

  // The ring's reader takes the daemon's words as const; nothing can write them, they are mapped
  // read-only.
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
