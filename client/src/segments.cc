#include "client/src/segments.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace geminid {
namespace {

using Access = base::MappingOptions::Access;

absl::Status CheckHeader(const char* which, uint32_t magic, uint32_t expected_magic,
                         uint32_t version, uint32_t expected_version) {
  if (magic == expected_magic && version == expected_version) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the daemon's ", which, " segment has layout version ", version,
      ", this library knows version ", expected_version, "; install the same release of both"));
}

}  // namespace

absl::StatusOr<Segments> Segments::Map(const base::UniqueFd& state, const base::UniqueFd& client,
                                       const base::UniqueFd& commit) {
  Segments segments;
  const auto map = [](const base::UniqueFd& fd, uint64_t bytes, Access access,
                      base::Mapping* into) -> absl::Status {
    GEMINID_ASSIGN_OR_RETURN(
        *into,
        base::Mapping::Map(fd, bytes, {.access = access, .populate = true, .foreign = true}));
    return absl::OkStatus();
  };
  absl::Status status = map(state, sizeof(shm::StateSegment), Access::kRead, &segments.state_);
  status.Update(map(client, sizeof(shm::ClientSegment), Access::kReadWrite, &segments.client_));
  status.Update(map(commit, sizeof(shm::CommitSegment), Access::kReadWrite, &segments.commit_));
  if (!status.ok()) return status;

  const shm::StateHeader& daemon_side = segments.state()->header;
  const shm::ClientHeader& client_side = segments.client()->header;
  const shm::CommitHeader& commit_side = segments.commit()->header;
  status.Update(CheckHeader("state", daemon_side.magic, shm::kStateMagic, daemon_side.version,
                            shm::kLayoutVersion));
  status.Update(CheckHeader("client", client_side.magic, shm::kClientMagic, client_side.version,
                            shm::kLayoutVersion));
  status.Update(CheckHeader("commit", commit_side.magic, shm::kCommitMagic, commit_side.version,
                            shm::kCommitVersion));
  if (status.ok() && (daemon_side.max_chunks != shm::kMaxChunks ||
                      daemon_side.ring_entries != shm::kRingEntries)) {
    status = absl::FailedPreconditionError(
        absl::StrCat("the daemon's tables hold ", daemon_side.max_chunks, " chunks and ",
                     daemon_side.ring_entries, " requests, this library's ", shm::kMaxChunks,
                     " and ", shm::kRingEntries, "; install the same release of both"));
  }
  if (!status.ok()) return status;
  return segments;
}

}  // namespace geminid
