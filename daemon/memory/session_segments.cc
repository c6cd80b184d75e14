#include "daemon/memory/session_segments.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "base/mapping.h"
#include "base/memfd.h"
#include "base/pages.h"
#include "base/status_macros.h"
#include "daemon/memory/host_pool.h"

namespace geminid::memory {
namespace {

struct Segment {
  base::UniqueFd fd;
  base::Mapping mapping;
};

absl::StatusOr<base::Mapping> MapAgain(const base::UniqueFd& fd, uint64_t bytes) {
  const uint64_t rounded = base::RoundUpToPage(bytes);
  GEMINID_RETURN_IF_ERROR(base::CheckSealed(fd, rounded));
  return base::Mapping::Map(fd, rounded);
}

absl::StatusOr<Segment> CreateSegment(const std::string& name, uint64_t bytes) {
  const uint64_t rounded = base::RoundUpToPage(bytes);
  GEMINID_ASSIGN_OR_RETURN(base::UniqueFd fd, base::CreateSealedMemfd(name, rounded));
  GEMINID_ASSIGN_OR_RETURN(base::Mapping mapping, base::Mapping::Map(fd, rounded));
  return Segment{std::move(fd), std::move(mapping)};
}

// Fresh memfds are zero, which is the empty value of every other field.
void InitialiseState(shm::StateSegment* segment, shm::SessionId session, uint64_t daemon_epoch) {
  shm::StateHeader& header = segment->header;
  header.magic = shm::kStateMagic;
  header.version = shm::kLayoutVersion;
  header.size_of_header = sizeof(shm::StateHeader);
  header.max_chunks = shm::kMaxChunks;
  header.ring_entries = shm::kRingEntries;
  header.session_id = shm::Value(session);
  header.daemon_epoch.store(daemon_epoch);
  header.phase.store(static_cast<uint32_t>(shm::Phase::kServing));
}

void InitialiseClient(shm::ClientSegment* segment) {
  segment->header.magic = shm::kClientMagic;
  segment->header.version = shm::kLayoutVersion;
  segment->header.size_of_header = sizeof(shm::ClientHeader);
  segment->header.max_chunks = shm::kMaxChunks;
}

void InitialiseCommit(shm::CommitHeader* header) {
  header->magic = shm::kCommitMagic;
  header->version = shm::kCommitVersion;
  header->size_of_record = sizeof(shm::CommitRecord);
}

}  // namespace

absl::StatusOr<SessionSegments> SessionSegments::Create(shm::SessionId session,
                                                        uint64_t daemon_epoch,
                                                        base::UniqueFd commit) {
  const std::string name = absl::StrCat("geminid-session", shm::Value(session));
  GEMINID_ASSIGN_OR_RETURN(Segment state,
                           CreateSegment(name + "-state", sizeof(shm::StateSegment)));
  GEMINID_ASSIGN_OR_RETURN(Segment client,
                           CreateSegment(name + "-client", sizeof(shm::ClientSegment)));
  if (commit.valid()) {
    GEMINID_RETURN_IF_ERROR(
        base::CheckSealed(commit, base::RoundUpToPage(sizeof(shm::CommitSegment))));
  } else {
    GEMINID_ASSIGN_OR_RETURN(Segment made,
                             CreateSegment(name + "-commit", sizeof(shm::CommitSegment)));
    InitialiseCommit(reinterpret_cast<shm::CommitHeader*>(made.mapping.data()));
    commit = std::move(made.fd);
  }

  SessionSegments segments;
  GEMINID_ASSIGN_OR_RETURN(segments.state_read_only_, base::ReopenReadOnly(state.fd));
  segments.state_ = std::move(state.fd);
  segments.state_map_ = std::move(state.mapping);
  segments.client_ = std::move(client.fd);
  segments.client_map_ = std::move(client.mapping);
  segments.commit_ = std::move(commit);
  InitialiseState(segments.state(), session, daemon_epoch);
  InitialiseClient(segments.client());
  return segments;
}

absl::StatusOr<SessionSegments> SessionSegments::Adopt(shm::SessionId session,
                                                       base::UniqueFd&& state,
                                                       base::UniqueFd&& client,
                                                       base::UniqueFd&& commit,
                                                       uint64_t daemon_epoch) {
  SessionSegments segments;
  GEMINID_ASSIGN_OR_RETURN(segments.state_map_, MapAgain(state, sizeof(shm::StateSegment)));
  GEMINID_ASSIGN_OR_RETURN(segments.client_map_, MapAgain(client, sizeof(shm::ClientSegment)));
  GEMINID_RETURN_IF_ERROR(
      base::CheckSealed(commit, base::RoundUpToPage(sizeof(shm::CommitSegment))));
  GEMINID_ASSIGN_OR_RETURN(segments.state_read_only_, base::ReopenReadOnly(state));
  shm::StateHeader& header = segments.state()->header;
  if (header.magic != shm::kStateMagic || header.version != shm::kLayoutVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "a session's shared memory has layout ", header.version, ", this release knows layout ",
        shm::kLayoutVersion, "; start the release that made it"));
  }
  if (header.session_id != shm::Value(session)) {
    return absl::DataLossError("a session's shared memory is another session's");
  }
  segments.state_ = std::move(state);
  segments.client_ = std::move(client);
  segments.commit_ = std::move(commit);
  header.daemon_epoch.store(daemon_epoch);
  return segments;
}

uint64_t SessionSegments::Bytes() {
  return base::RoundUpToPage(sizeof(shm::StateSegment)) +
         base::RoundUpToPage(sizeof(shm::ClientSegment)) +
         base::RoundUpToPage(sizeof(shm::CommitSegment));
}

// These cannot fail: the ranges are whole pages of memfds that are sealed against shrinking only.
void SessionSegments::Discard() const {
  constexpr int kPunch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  (void)::madvise(state_map_.data() + base::kPageBytes, state_map_.bytes() - base::kPageBytes,
                  MADV_REMOVE);
  (void)::fallocate(client_.get(), kPunch, 0,
                    static_cast<off_t>(base::RoundUpToPage(sizeof(shm::ClientSegment))));
  (void)::fallocate(commit_.get(), kPunch, 0,
                    static_cast<off_t>(base::RoundUpToPage(sizeof(shm::CommitSegment))));
}

}  // namespace geminid::memory
