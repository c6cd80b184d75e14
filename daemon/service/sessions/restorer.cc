#include "daemon/service/sessions/restorer.h"

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/mapping.h"
#include "base/memfd.h"
#include "base/pages.h"
#include "base/status_macros.h"
#include "daemon/memory/host_arena.h"
#include "daemon/os/log.h"

namespace geminid::service {

// A session's memory that an earlier daemon left.
struct Restorer::Memory {
  std::map<shm::PoolId, memory::HostPool> pools;
  std::vector<memory::HostPool> slabs;
  bool has_arena = false;  // the slabs are one

  // Takes slabs in order, up to the first that is not sound: a revoked slab has no bytes.
  static Memory Take(InheritedDescriptors::OfSession* kept) {
    Memory memory;
    for (auto& [id, fd] : kept->pools) {
      absl::StatusOr<memory::HostPool> pool = memory::HostPool::Adopt(std::move(fd));
      if (pool.ok()) memory.pools.emplace(id, *std::move(pool));
    }
    kept->pools.clear();
    for (auto& [number, fd] : kept->slabs) {
      absl::StatusOr<memory::HostPool> slab = memory::HostPool::Adopt(std::move(fd));
      if (!slab.ok()) break;
      memory.slabs.push_back(*std::move(slab));
    }
    kept->slabs.clear();
    return memory;
  }
  uint64_t SlabBytes() const {
    uint64_t bytes = 0;
    for (const memory::HostPool& slab : slabs) bytes += slab.bytes();
    return bytes;
  }
  void Revoke() const {
    for (const auto& [id, pool] : pools) pool.Revoke().IgnoreError();
    for (const memory::HostPool& slab : slabs) slab.Revoke().IgnoreError();
  }
};

namespace {

std::vector<uint64_t> StateWordsOf(const ClientSession& session) {
  std::vector<uint64_t> words(shm::kMaxChunks);
  for (size_t i = 0; i < words.size(); ++i) {
    words[i] = session.segments().state()->state[i].load(std::memory_order_relaxed);
  }
  return words;
}

absl::StatusOr<core::SessionBooks> OpenBooks(const base::UniqueFd& fd, base::Mapping* mapping) {
  const uint64_t bytes = base::RoundUpToPage(core::SessionBooks::Bytes());
  GEMINID_RETURN_IF_ERROR(base::CheckSealed(fd, base::kPageBytes));
  if (!base::CheckSealed(fd, bytes).ok()) {
    return absl::FailedPreconditionError(
        "the books of a session have another size; start the release that wrote them");
  }
  GEMINID_ASSIGN_OR_RETURN(*mapping, base::Mapping::Map(fd, bytes));
  return core::SessionBooks::Open({mapping->data(), bytes});
}

}  // namespace

bool IsDamage(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsAborted(status) || absl::IsInvalidArgument(status);
}

absl::Status Restorer::AdoptAll(std::map<shm::SessionId, InheritedDescriptors::OfSession>* kept,
                                Shortage* shortage) {
  for (auto& [id, session] : *kept) {
    absl::Status status = shortage->Outlast([&] { return Adopt(id, &session); });
    if (status.ok()) continue;
    if (!IsDamage(status)) return status;
    ++lost_;
    os::Log(os::LogLevel::kError, "a session could not be taken over, and ends",
            {{"session", absl::StrCat(shm::Value(id))}, {"why", std::string(status.message())}});
    GiveUp(store_, session);
  }
  return absl::OkStatus();
}

absl::Status Restorer::Finish(std::vector<core::Outgoing>* out) {
  absl::Status status;
  {
    const Locked locked = table_->Lock();
    locked.engine().FinishRestore(Now(), out);
    status = locked.Check();
  }
  if (status.ok()) return status;
  RevokeAll();
  return absl::DataLossError(status.message());
}

// For the memory of adopted sessions, which is no longer in the kept descriptors.
void Restorer::RevokeAll() {
  const Locked locked = table_->Lock();
  for (const auto& [id, session] : locked.sessions()) {
    for (const auto& [pool_id, pool] : session->pools) pool.Revoke().IgnoreError();
    if (session->arena != nullptr)
      session->arena->Revoke(base::UniqueFd(), [](const absl::Status&) {});
    Tell(session, shm::Phase::kGone, SleepingClient::End::kAll, waker_);
  }
}

// Checks the kept descriptors, and returns the session's facts. Takes nothing from `kept`.
absl::StatusOr<core::SessionFacts> Restorer::Check(shm::SessionId id,
                                                   const InheritedDescriptors::OfSession& kept) {
  for (const char* kind : {kKeptBooks, kKeptState, kKeptClient, kKeptCommit, kKeptDaemonEvent,
                           kKeptClientEvent, kKeptSocket}) {
    if (!kept.kinds.contains(kind)) {
      return absl::DataLossError("it was being opened, or was ending");
    }
  }
  base::Mapping memory;
  GEMINID_ASSIGN_OR_RETURN(const core::SessionBooks books,
                           OpenBooks(kept.kinds.at(kKeptBooks), &memory));
  GEMINID_ASSIGN_OR_RETURN(core::SessionFacts facts, books.Facts());
  if (facts.id != id) return absl::DataLossError("its books are another session's");
  if (!books.welcomed()) return absl::DataLossError("its client never received its token");
  if (shm::Value(facts.device) < table_->Lock().engine().devices().size()) return facts;
  return absl::FailedPreconditionError(
      absl::StrCat("a session of job ", facts.spec.job, " is on device ", shm::Value(facts.device),
                   ", which the configuration does not have; start "
                   "with that device"));
}

// Memory that the engine knows becomes the session's; the rest was being made or destroyed.
void Restorer::GiveMemory(const Locked& locked, ClientSession* session, Memory memory) {
  const shm::SessionId id = session->id();
  std::set<shm::PoolId> used;
  for (const core::PoolSnapshot& pool : locked.engine().Pools({id, core::kNoPool})) {
    if (pool.session == id) used.insert(pool.pool);
  }
  for (auto& [pool_id, pool] : memory.pools) {
    if (used.contains(pool_id)) {
      session->pools.emplace(pool_id, std::move(pool));
    } else {
      garbage_.pools.push_back(std::move(pool));
      garbage_.descriptor_names.push_back(PoolName(id, pool_id));
    }
  }
  if (memory.has_arena) {
    session->arena = memory::HostArena::Adopt(std::move(memory.slabs));
    return;
  }
  for (uint32_t i = 0; i < memory.slabs.size(); ++i) {
    garbage_.pools.push_back(std::move(memory.slabs[i]));
    garbage_.descriptor_names.push_back(SlabName(id, i));
  }
}

// On an error `kept` still has everything; or, of a damaged session, all that is not revoked.
absl::Status Restorer::Adopt(shm::SessionId id, InheritedDescriptors::OfSession* kept) {
  GEMINID_ASSIGN_OR_RETURN(const core::SessionFacts facts, Check(id, *kept));
  const Locked locked = table_->Lock();
  core::Engine& engine = locked.engine();
  GEMINID_ASSIGN_OR_RETURN(
      SessionPtr session,
      ClientSession::Adopt(facts, table_->epoch(), engine.devices()[shm::Value(facts.device)], kept,
                           in_flight_));
  GEMINID_ASSIGN_OR_RETURN(const core::SessionBooks books,
                           core::SessionBooks::Open(session->books_memory()));
  core::InheritedSession inherited(books);
  Memory memory = Memory::Take(kept);
  // An arena that is not in the books was being made or destroyed.
  memory.has_arena = books.arena_bytes() > 0;
  if (memory.has_arena) inherited.arena_bytes = memory.SlabBytes();
  for (const auto& [pool_id, pool] : memory.pools) inherited.pools[pool_id] = pool.bytes();
  inherited.state_words = StateWordsOf(*session);
  inherited.request_in_doubt = session->rings().HasRequest();
  locked.sessions()[id] = session;
  absl::Status status = engine.RestoreSession(inherited, Now());
  if (status.ok()) {
    if (!engine.IsAttached(id)) {
      session->SetEnded();
      // A replacement that never got its Welcome tries again.
      waker_->End(session, SleepingClient::End::kAll);
    }
    GiveMemory(locked, session.get(), std::move(memory));
    plans_->Load(locked, session.get(), std::move(kept->plans), &garbage_.descriptor_names);
    return absl::OkStatus();
  }
  locked.sessions().erase(id);
  if (absl::IsResourceExhausted(status)) {
    return absl::FailedPreconditionError(
        absl::StrCat("the configuration gives less than job ", facts.spec.job, " already has: ",
                     std::string(status.message()), "; raise host_memory or the device's memory"));
  }
  memory.Revoke();
  Tell(session, shm::Phase::kGone, SleepingClient::End::kAll, waker_);
  return status;
}

}  // namespace geminid::service
