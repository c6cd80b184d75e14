// What the library's own upper layers need of a session, and its users do not.
#ifndef GEMINID_CLIENT_SRC_SESSION_INTERNAL_H_
#define GEMINID_CLIENT_SRC_SESSION_INTERNAL_H_

#include "geminid/session.h"
#include "proto/shm/commit_layout.h"

namespace geminid {

// Mapped for as long as the session lives. See commit_layout.h for who may write what.
shm::CommitSegment* CommitSegmentOf(Session& session);

}  // namespace geminid

#endif  // GEMINID_CLIENT_SRC_SESSION_INTERNAL_H_
