#include "daemon/service/sessions/attachments.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "daemon/service/heritage/inherited_descriptors.h"
#include "daemon/service/sessions/token.h"

namespace geminid::service {

absl::StatusOr<SessionPtr> Attachments::Open(const core::SessionSpec& spec, os::Peer peer,
                                             base::UniqueFd socket) {
  Garbage garbage;
  // A dead client's session may have many chunks: they are retained before it is taken over.
  if (!spec.run.empty()) {
    {
      const Locked locked = table_->Lock();
      GEMINID_RETURN_IF_ERROR(replacements_.CloseDead(locked, spec, &garbage));
      const std::optional<shm::SessionId> kept = locked.engine().FindKept(spec);
      if (kept.has_value()) garbage.closing.push_back({*kept, /*died=*/true});
    }
    reclaimer_->FinishClosing(&garbage);
  }
  absl::StatusOr<SessionPtr> session = [&]() -> absl::StatusOr<SessionPtr> {
    const Locked locked = table_->Lock();
    if (spec.run.empty()) return OpenNew(locked, spec, std::move(peer), std::move(socket));
    GEMINID_RETURN_IF_ERROR(replacements_.CloseDead(locked, spec, &garbage));
    const std::optional<shm::SessionId> kept = locked.engine().FindKept(spec);
    if (!kept.has_value()) return OpenNew(locked, spec, std::move(peer), std::move(socket));
    return replacements_.Reopen(locked, *kept, spec, std::move(peer), std::move(socket), &garbage);
  }();
  if (session.ok()) session = Store(*std::move(session));
  reclaimer_->DestroyLater(std::move(garbage));  // only now: the new client's entries are stored
  return session;
}

absl::StatusOr<SessionPtr> Attachments::Store(SessionPtr session) {
  const uint64_t refills = store_->refills();
  store_->PutSession(*session);
  if (store_->refills() != refills) store_->PutSession(*session);
  SessionPtr now;  // null: it ended for good meanwhile, perhaps before all of it was stored
  bool ended = false;
  {
    const Locked locked = table_->Lock();
    ended = session->ended();
    const auto found = locked.sessions().find(session->id());
    if (found != locked.sessions().end()) now = found->second;
  }
  if (!ended) return session;
  // Its client died. What was stored is this client's alone, except for the commit segment. That
  // has the same name for every client of the session, and a replacement may use it already.
  const bool is_kept = now == session;
  for (const auto& [name, fd] : session->DescriptorsToStore()) {
    const bool is_commit = name == DescriptorName(session->id(), kKeptCommit);
    if (!is_kept && !(is_commit && now != nullptr)) store_->Remove(name);
  }
  return absl::AbortedError("the session was ended while it began");
}

absl::StatusOr<SessionPtr> Attachments::OpenNew(const Locked& locked, const core::SessionSpec& spec,
                                                os::Peer peer, base::UniqueFd socket) {
  core::Engine& engine = locked.engine();
  if (gpus_ != nullptr) engine.SetUnfit(gpus_->Unfit());
  GEMINID_ASSIGN_OR_RETURN(const shm::SessionId id, engine.OpenSession(spec, Now()));
  absl::StatusOr<SessionPtr> session =
      MakeSession(locked, id, spec, std::move(peer), std::move(socket));
  if (!session.ok()) (void)engine.CloseSession(id, core::CloseReason::kDetached, Now());
  return session;
}

absl::StatusOr<SessionPtr> Attachments::MakeSession(const Locked& locked, shm::SessionId id,
                                                    const core::SessionSpec& spec, os::Peer peer,
                                                    base::UniqueFd socket) {
  core::Engine& engine = locked.engine();
  const core::DeviceDescription device = *engine.DeviceOf(id);
  if (gpus_ != nullptr) GEMINID_RETURN_IF_ERROR(gpus_->CheckFit(device.index));
  GEMINID_ASSIGN_OR_RETURN(SessionPtr session,
                           ClientSession::Create(id, table_->epoch(), spec, device, std::move(peer),
                                                 std::move(socket), in_flight_));
  GEMINID_ASSIGN_OR_RETURN(const core::SessionBooks books, MakeBooks(*session, Now()));
  engine.KeepBooks(id, books);
  locked.sessions()[id] = session;
  return session;
}

void Attachments::SetWelcomed(const SessionPtr& session) {
  const Locked locked = table_->Lock();
  // Its client may be gone already.
  if (!session->ended()) locked.engine().SetWelcomed(session->id());
}

absl::StatusOr<SessionPtr> Attachments::Authenticate(const std::string& token_hex) {
  absl::Status refused = absl::UnauthenticatedError(
      absl::StrCat("this call needs the token of an attached session in the metadata '",
                   shm::kTokenMetadataKey, "'; it is unknown, or its session has ended"));
  Token token;
  if (!FromHex(token_hex, &token)) return refused;
  const Locked locked = table_->Lock();
  SessionPtr match;
  // Compares with all tokens, so that the time does not tell which one was near.
  for (const auto& [id, session] : locked.sessions()) {
    if (ConstantTimeEqual(session->token(), token) && !session->ended()) match = session;
  }
  if (match == nullptr) return refused;
  // The client may call before the attach thread has recorded that it received its token.
  locked.engine().SetWelcomed(match->id());
  return match;
}

}  // namespace geminid::service
