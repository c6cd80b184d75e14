// The part of the hub that gives a dead client's session to its successor.
//
// The successor gets new segments but for the commit segment, a new token and new books. They come
// into the store under names of their own, the books last, and then the old ones go; and until the
// successor was told, the new books have the session as kept. So whatever instruction the daemon
// dies at, the next one finds a kept session, or the successor's.
#include <fcntl.h>
#include <poll.h>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "daemon/os/log.h"
#include "daemon/service/sessions/hub.h"

namespace geminid::service {
namespace {

bool IsOfRun(const core::SessionSpec& spec) { return !spec.run.empty(); }

// Its process has ended, or has closed its connection; nobody may have noticed yet.
bool HasGone(const ClientSession& session) {
  pollfd signs[] = {{session.pidfd().get(), POLLIN, 0}, {session.socket().get(), POLLRDHUP, 0}};
  return ::poll(signs, std::size(signs), 0) > 0;
}

}  // namespace

absl::StatusOr<SessionPtr> Hub::Open(const core::SessionSpec& spec, os::Peer peer,
                                     base::UniqueFd socket) {
  Garbage garbage;
  absl::StatusOr<SessionPtr> session = [&]() -> absl::StatusOr<SessionPtr> {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!IsOfRun(spec)) return OpenNew(spec, std::move(peer), std::move(socket));
    GEMINID_RETURN_IF_ERROR(ClosePredecessor(spec, &garbage));
    const std::optional<shm::SessionId> kept = engine_->FindKept(spec);
    if (!kept.has_value()) return OpenNew(spec, std::move(peer), std::move(socket));
    return Reopen(*kept, spec, std::move(peer), std::move(socket), &garbage);
  }();
  if (session.ok()) session = KeepNew(*std::move(session));
  DestroyLater(std::move(garbage));  // what a predecessor left is kept until then
  return session;
}

absl::Status Hub::ClosePredecessor(const core::SessionSpec& spec, Garbage* garbage) {
  for (const auto& [id, session] : tables_.sessions) {
    if (session->ended || !IsOfRun(session->spec()) || !IsSameRank(session->spec(), spec)) {
      continue;
    }
    if (!HasGone(*session)) {
      return absl::UnavailableError(absl::StrCat(
          "rank ", spec.rank, " of run ", spec.run, " of job ", spec.job, " is process ",
          session->spec().pid, ", which lives; end it first, or give this run another name"));
    }
    // It may end for good, and then it is nowhere any more: look no further.
    Closed closed = CloseLocked(SessionPtr(session), core::CloseReason::kDied);
    *garbage = std::move(closed.garbage);
    return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::StatusOr<SessionPtr> Hub::Reopen(shm::SessionId id, const core::SessionSpec& spec,
                                       os::Peer peer, base::UniqueFd socket, Garbage* garbage) {
  const SessionPtr old = tables_.sessions.at(id);
  base::UniqueFd commit(::fcntl(old->segments().commit_fd().get(), F_DUPFD_CLOEXEC, 0));
  if (!commit.valid()) return absl::ErrnoToStatus(errno, "F_DUPFD_CLOEXEC of a commit segment");
  GEMINID_ASSIGN_OR_RETURN(
      SessionPtr session,
      ClientSession::Create(id, daemon_epoch_, spec, *engine_->DeviceOf(id), std::move(peer),
                            std::move(socket), &in_flight_, std::move(commit)));
  GEMINID_ASSIGN_OR_RETURN(const core::SessionBooks books, MakeBooks(*session));
  GEMINID_ASSIGN_OR_RETURN(const core::SessionBooks old_books,
                           core::SessionBooks::Open(old->books_memory()));
  tables_.sessions[id] = session;
  engine_->KeepBooks(id, books);
  if (absl::Status status = engine_->ReopenSession(id, spec, Now()); !status.ok()) {
    tables_.sessions[id] = old;
    engine_->KeepBooks(id, old_books);
    return status;
  }
  session->successor = engine_->SuccessorNumber(id);
  session->pools = std::move(old->pools);
  session->arena = std::move(old->arena);
  plan_memory_.Give(old->spec().tenant, old->plan_bytes);
  old->plan_bytes = 0;
  session->which_client = old->which_client + 1;
  const auto commit_name = KeepsakeName(id, kKeptCommit);
  for (const auto& [name, fd] : old->Keepsakes()) {
    if (name != commit_name) garbage->keepsakes.push_back(name);
  }
  garbage->sessions.push_back(old);
  return session;
}

absl::StatusOr<core::Allocation> Hub::Claim(const SessionPtr& session,
                                            const std::vector<core::ChunkSpec>& specs,
                                            uint64_t number) {
  absl::StatusOr<core::Allocation> allocation;
  std::vector<Passed> passed;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    allocation = engine_->Claim(session->id(), specs, number);
    if (!allocation.ok() || allocation->pool == core::kNoPool) return allocation;
    const auto pool = session->pools.find(allocation->pool);
    if (pool == session->pools.end()) {
      return absl::InternalError("a pool that is kept is not there");
    }
    passed.push_back(PoolToPass(pool->first, pool->second));
  }
  GEMINID_RETURN_IF_ERROR(Pass(*session, passed));
  return allocation;
}

absl::Status Hub::FreeOlder(const SessionPtr& session, uint64_t number) {
  if (number == 0) return absl::OkStatus();
  absl::StatusOr<std::vector<shm::ChunkId>> older;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    older = engine_->MadeBy(session->id(), 0, number - 1);
  }
  if (!older.ok()) return older.status();
  return FreeInSlices(session, *std::move(older));
}

}  // namespace geminid::service
