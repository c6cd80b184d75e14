#include "daemon/service/sessions/replacements.h"

#include <fcntl.h>
#include <poll.h>

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "daemon/service/heritage/inherited_descriptors.h"

namespace geminid::service {
namespace {

// The client's process has ended or closed its connection; perhaps nobody has noticed yet.
bool HasGone(const ClientSession& session) {
  pollfd signs[] = {{session.pidfd().get(), POLLIN, 0}, {session.socket().get(), POLLRDHUP, 0}};
  return ::poll(signs, std::size(signs), 0) > 0;
}

}  // namespace

absl::Status Replacements::CloseDead(const Locked& locked, const core::SessionSpec& spec,
                                     Garbage* garbage) {
  for (const auto& [id, session] : locked.sessions()) {
    if (session->ended() || session->spec().run.empty() || !IsSameRank(session->spec(), spec)) {
      continue;
    }
    if (!HasGone(*session)) {
      return absl::UnavailableError(absl::StrCat(
          "rank ", spec.rank, " of run ", spec.run, " of job ", spec.job, " is process ",
          session->spec().pid, ", which lives; end it first, or give this run another name"));
    }
    // The session may end for good, and leave the table: look no further.
    ends_->Close(locked, SessionPtr(session), core::CloseReason::kDied, garbage);
    return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::StatusOr<SessionPtr> Replacements::Reopen(const Locked& locked, shm::SessionId id,
                                                const core::SessionSpec& spec, os::Peer peer,
                                                base::UniqueFd socket, Garbage* garbage) {
  core::Engine& engine = locked.engine();
  const SessionPtr old = locked.sessions().at(id);
  // Finishes retaining the session, which reads the old segments; mostly nothing is left to do.
  core::Releases none;
  (void)engine.ContinueClose(id, shm::kMaxChunks, &none);
  base::UniqueFd commit(::fcntl(old->segments().commit_fd().get(), F_DUPFD_CLOEXEC, 0));
  if (!commit.valid()) return absl::ErrnoToStatus(errno, "F_DUPFD_CLOEXEC of a commit segment");
  GEMINID_ASSIGN_OR_RETURN(
      SessionPtr session,
      ClientSession::Create(id, engine.manifest().epoch(), spec, *engine.DeviceOf(id),
                            std::move(peer), std::move(socket), in_flight_, std::move(commit)));
  GEMINID_ASSIGN_OR_RETURN(const core::SessionBooks books, MakeBooks(*session, Now()));
  GEMINID_ASSIGN_OR_RETURN(const core::SessionBooks old_books,
                           core::SessionBooks::Open(old->books_memory()));
  locked.sessions()[id] = session;
  engine.KeepBooks(id, books);
  if (absl::Status status = engine.ReopenSession(id, spec, Now()); !status.ok()) {
    locked.sessions()[id] = old;
    engine.KeepBooks(id, old_books);
    return status;
  }
  session->successor = engine.SuccessorNumber(id);
  session->pools = std::move(old->pools);
  session->arena = std::move(old->arena);
  plans_->Forget(locked, old.get());
  session->which_client = old->which_client + 1;
  const auto commit_name = DescriptorName(id, kKeptCommit);
  for (const auto& [name, fd] : old->DescriptorsToStore()) {
    if (name != commit_name) garbage->descriptor_names.push_back(name);
  }
  garbage->sessions.push_back(old);
  return session;
}

}  // namespace geminid::service
