#include "tests/simulation/simulated_daemon.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/memfd.h"
#include "base/pages.h"
#include "base/status_macros.h"
#include "daemon/service/heritage/inherited_descriptors.h"

namespace geminid::simulation {
namespace {

using service::InheritedDescriptors;
using service::SessionPtr;

constexpr uint32_t kRecords = 256;
const core::Time kNow = core::Time::FromNanoseconds(1);

base::UniqueFd Another(int fd) { return base::UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

uint64_t ManifestBytes() { return base::RoundUpToPage(core::Manifest::BytesFor(kRecords)); }
uint64_t BooksBytes() { return base::RoundUpToPage(core::SessionBooks::Bytes()); }

bool IsWhole(const InheritedDescriptors::OfSession& kept) {
  constexpr const char* kKinds[] = {service::kKeptBooks,       service::kKeptState,
                                    service::kKeptClient,      service::kKeptCommit,
                                    service::kKeptDaemonEvent, service::kKeptClientEvent,
                                    service::kKeptSocket};
  return kept.slabs.contains(0) &&
         std::ranges::all_of(kKinds, [&](const char* kind) { return kept.kinds.contains(kind); });
}

}  // namespace

uint64_t Node::PoolBytes() const {
  uint64_t bytes = 0;
  for (const auto& [name, of_pool] : pools) bytes += of_pool;
  return bytes;
}

void SimulatedDaemon::Tables::PublishState(shm::SessionId session, shm::ChunkId chunk,
                                           uint64_t word) {
  (*on_step_)();
  SharedTables::PublishState(session, chunk, word);
}

uint64_t SimulatedDaemon::Tables::ReadLease(shm::SessionId session, shm::ChunkId chunk) {
  (*on_step_)();
  return SharedTables::ReadLease(session, chunk);
}

uint64_t SimulatedDaemon::Tables::ReadCompletion(shm::SessionId session, uint16_t index) {
  (*on_step_)();
  return SharedTables::ReadCompletion(session, index);
}

SimulatedDaemon::SimulatedDaemon(const DaemonOptions& options, Node* node)
    : options_(options), node_(node), tables_(&options_.on_step) {}

// --- what is kept --------------------------------------------------------------------------------

void SimulatedDaemon::Put(const std::string& name, int fd) {
  Step();
  node_->table.Handle({.op = holder::Op::kPut, .name = name}, Another(fd));
}

void SimulatedDaemon::Remove(const std::string& name) {
  Step();
  node_->table.Handle({.op = holder::Op::kRemove, .name = name}, base::UniqueFd());
}

void SimulatedDaemon::Keep(const service::ClientSession& session) {
  for (const auto& [name, fd] : session.DescriptorsToStore()) Put(name, fd);
}

void SimulatedDaemon::KeepAll() {
  Put(service::kKeptManifest, manifest_fd_.get());
  for (const auto& [id, session] : tables_.sessions) {
    for (const auto& [pool_id, pool] : session->pools) {
      Put(service::PoolName(id, pool_id), pool.fd().get());
    }
    Put(service::SlabName(id, 0), slabs_.at(id).get());
    Keep(*session);
  }
}

// --- taking over ---------------------------------------------------------------------------------

absl::Status SimulatedDaemon::Start() {
  std::vector<holder::StoredDescriptor> listed;
  for (const auto& [name, fd] : node_->table.items()) listed.push_back({name, Another(fd.get())});
  // The rest had its last descriptor closed.
  std::erase_if(node_->pools,
                [&](const auto& pool) { return !node_->table.items().contains(pool.first); });
  InheritedDescriptors kept = service::Sort(std::move(listed));
  if (kept.manifest.valid()) return TakeOver(&kept);
  for (const auto& [id, session] : kept.sessions) GiveUp(session);
  return Begin();
}

absl::Status SimulatedDaemon::Begin() {
  GEMINID_ASSIGN_OR_RETURN(manifest_fd_, base::CreateSealedMemfd("manifest", ManifestBytes()));
  GEMINID_ASSIGN_OR_RETURN(manifest_memory_, base::Mapping::Map(manifest_fd_, ManifestBytes()));
  GEMINID_ASSIGN_OR_RETURN(
      core::Manifest manifest,
      core::Manifest::Create({manifest_memory_.data(), core::Manifest::BytesFor(kRecords)}, 1));
  engine_ = std::make_unique<core::Engine>(options_.engine, &tables_, std::move(manifest));
  Put(service::kKeptManifest, manifest_fd_.get());
  return absl::OkStatus();
}

absl::Status SimulatedDaemon::TakeOver(InheritedDescriptors* kept) {
  options_.on_take_over();
  manifest_fd_ = std::move(kept->manifest);
  GEMINID_ASSIGN_OR_RETURN(manifest_memory_, base::Mapping::Map(manifest_fd_, ManifestBytes()));
  GEMINID_ASSIGN_OR_RETURN(
      core::Manifest manifest,
      core::Manifest::Open({manifest_memory_.data(), core::Manifest::BytesFor(kRecords)}));
  engine_ = std::make_unique<core::Engine>(options_.engine, &tables_, std::move(manifest));
  service::Shortage shortage(options_.pause);
  for (auto& [id, session] : kept->sessions) {
    if (IsWhole(session)) {
      GEMINID_RETURN_IF_ERROR(shortage.Outlast([&] { return Adopt(id, &session); }));
    } else {
      GiveUp(session);
    }
  }
  std::vector<core::Outgoing> out;
  engine_->FinishRestore(kNow, &out);
  if (!options_.loses_resends) Deliver(out);
  while (Destroy()) {
  }
  for (const std::string& name : kept->needless) Remove(name);
  engine_->HasServed();
  return engine_->Check();
}

absl::StatusOr<SessionPtr> SimulatedDaemon::AdoptClient(const core::SessionFacts& facts,
                                                        InheritedDescriptors::OfSession* kept) {
  const uint64_t bytes = base::RoundUpToPage(sizeof(shm::StateSegment));
  GEMINID_ASSIGN_OR_RETURN(const base::Mapping state,
                           base::Mapping::Map(kept->kinds.at(service::kKeptState), bytes));
  const uint64_t read = reinterpret_cast<const shm::StateSegment*>(state.data())
                            ->cursor.requests_read.load(std::memory_order_relaxed);
  GEMINID_ASSIGN_OR_RETURN(SessionPtr session, service::ClientSession::Adopt(
                                                   facts, engine_->manifest().epoch(),
                                                   engine_->devices()[0], kept, &node_->in_flight));
  if (options_.repeats_answered) {
    session->segments().state()->cursor.requests_read.store(read, std::memory_order_relaxed);
    session->rings() = service::SessionRings(session->segments());
  }
  return session;
}

absl::Status SimulatedDaemon::Adopt(shm::SessionId id, InheritedDescriptors::OfSession* kept) {
  GEMINID_ASSIGN_OR_RETURN(const base::Mapping memory,
                           base::Mapping::Map(kept->kinds.at(service::kKeptBooks), BooksBytes()));
  GEMINID_ASSIGN_OR_RETURN(const core::SessionBooks its_books,
                           core::SessionBooks::Open({memory.data(), memory.bytes()}));
  GEMINID_ASSIGN_OR_RETURN(const core::SessionFacts facts, its_books.Facts());
  GEMINID_ASSIGN_OR_RETURN(SessionPtr session, AdoptClient(facts, kept));
  GEMINID_ASSIGN_OR_RETURN(const core::SessionBooks books,
                           core::SessionBooks::Open(session->books_memory()));
  core::InheritedSession inherited(books);
  std::map<shm::PoolId, memory::HostPool> pools;
  for (auto& [pool_id, fd] : kept->pools) {
    GEMINID_ASSIGN_OR_RETURN(memory::HostPool pool, memory::HostPool::Adopt(std::move(fd)));
    inherited.pools[pool_id] = pool.bytes();
    pools.emplace(pool_id, std::move(pool));
  }
  slabs_[id] = std::move(kept->slabs.at(0));
  inherited.arena_bytes = books.arena_bytes();
  for (const auto& word : session->segments().state()->state) {
    inherited.state_words.push_back(word.load(std::memory_order_relaxed));
  }
  inherited.request_in_doubt = session->rings().HasRequest();
  tables_.sessions[id] = session;
  GEMINID_RETURN_IF_ERROR(engine_->RestoreSession(inherited, kNow));
  std::set<shm::PoolId> used;
  for (const core::PoolSnapshot& pool : engine_->Pools({id, core::kNoPool})) {
    if (pool.session == id) used.insert(pool.pool);
  }
  for (auto& [pool_id, pool] : pools) {
    if (used.contains(pool_id)) {
      session->pools.emplace(pool_id, std::move(pool));
    } else {
      garbage_.push_back({.pools = {service::PoolName(id, pool_id)}, .charges = {}});
    }
  }
  return absl::OkStatus();
}

// Its client reads the end of its connection.
void SimulatedDaemon::GiveUp(const InheritedDescriptors::OfSession& kept) {
  const auto socket = kept.kinds.find(service::kKeptSocket);
  if (socket != kept.kinds.end()) ::shutdown(socket->second.get(), SHUT_RDWR);
  for (const std::string& name : kept.names) {
    node_->pools.erase(name);
    Remove(name);
  }
}

// --- sessions and memory -------------------------------------------------------------------------

SessionPtr SimulatedDaemon::Find(shm::SessionId session) const {
  const auto found = tables_.sessions.find(session);
  return found == tables_.sessions.end() ? nullptr : found->second;
}

absl::StatusOr<SessionPtr> SimulatedDaemon::Open(const core::SessionSpec& spec,
                                                 base::UniqueFd socket, uint64_t arena_bytes) {
  GEMINID_ASSIGN_OR_RETURN(const shm::SessionId id, engine_->OpenSession(spec, kNow));
  GEMINID_ASSIGN_OR_RETURN(
      SessionPtr session,
      service::ClientSession::Create(id, engine_->manifest().epoch(), spec, engine_->devices()[0],
                                     os::Peer(), std::move(socket), &node_->in_flight));
  core::SessionFacts facts;
  facts.id = id;
  facts.spec = spec;
  facts.opened_at = kNow;
  facts.token = session->token();
  GEMINID_ASSIGN_OR_RETURN(const core::SessionBooks books,
                           core::SessionBooks::Create(session->books_memory(), facts));
  tables_.sessions[id] = session;
  engine_->KeepBooks(id, books);
  GEMINID_RETURN_IF_ERROR(engine_->CreateArena(id, arena_bytes).status());
  GEMINID_ASSIGN_OR_RETURN(slabs_[id], base::CreateRevocableMemfd("slab", arena_bytes));
  Put(service::SlabName(id, 0), slabs_[id].get());
  Keep(*session);
  engine_->SetWelcomed(id);
  return session;
}

absl::StatusOr<core::Allocation> SimulatedDaemon::Allocate(
    shm::SessionId id, const std::vector<core::ChunkSpec>& specs, uint64_t number, bool again) {
  if (again) {
    GEMINID_ASSIGN_OR_RETURN(const std::vector<shm::ChunkId> made,
                             engine_->MadeBy(id, number, number));
    GEMINID_ASSIGN_OR_RETURN(const core::Releases releases, engine_->Free(id, made));
    Collect(releases);
    while (Destroy()) {
    }
  }
  GEMINID_ASSIGN_OR_RETURN(const core::Promise promise,
                           engine_->BeginAllocation(id, specs, number));
  Step();
  absl::StatusOr<core::Allocation> allocation = MakePool(id, promise);
  if (!allocation.ok()) engine_->GiveBack(promise.charge);
  return allocation;
}

absl::StatusOr<core::Allocation> SimulatedDaemon::MakePool(shm::SessionId id,
                                                           const core::Promise& promise) {
  GEMINID_ASSIGN_OR_RETURN(base::UniqueFd fd, base::CreateRevocableMemfd("pool", promise.bytes));
  const std::string name = service::PoolName(id, promise.pool);
  node_->pools[name] = promise.bytes;
  node_->table.Handle({.op = holder::Op::kPut, .name = name}, Another(fd.get()));
  Step();
  GEMINID_ASSIGN_OR_RETURN(memory::HostPool pool, memory::HostPool::Adopt(std::move(fd)));
  GEMINID_ASSIGN_OR_RETURN(core::Allocation allocation, engine_->FinishAllocation(promise.charge));
  tables_.sessions.at(id)->pools.emplace(promise.pool, std::move(pool));
  Step();
  return allocation;
}

absl::Status SimulatedDaemon::Free(shm::SessionId id, std::vector<shm::ChunkId> chunks,
                                   bool again) {
  if (again) {
    std::erase_if(chunks,
                  [&](shm::ChunkId chunk) { return !engine_->FindChunk(id, chunk).has_value(); });
  }
  GEMINID_ASSIGN_OR_RETURN(const core::Releases releases, engine_->Free(id, chunks));
  Collect(releases);
  Step();
  return absl::OkStatus();
}

absl::Status SimulatedDaemon::Close(shm::SessionId id) {
  GEMINID_ASSIGN_OR_RETURN(const core::Releases releases,
                           engine_->CloseSession(id, core::CloseReason::kDetached, kNow));
  Collect(releases);
  return absl::OkStatus();
}

void SimulatedDaemon::Collect(const core::Releases& releases) {
  Garbage garbage = {.pools = {}, .charges = releases.charges};
  for (const auto& [id, pool] : releases.pools) {
    tables_.sessions.at(id)->pools.erase(pool);
    garbage.pools.push_back(service::PoolName(id, pool));
  }
  for (const shm::SessionId id : releases.sessions) {
    for (const auto& [name, fd] : tables_.sessions.at(id)->DescriptorsToStore()) Remove(name);
    Remove(service::SlabName(id, 0));
    tables_.sessions.erase(id);
    slabs_.erase(id);
  }
  if (options_.credits_early) {
    for (const core::ChargeId charge : std::exchange(garbage.charges, {})) {
      engine_->GiveBack(charge);
    }
  }
  garbage_.push_back(std::move(garbage));
}

bool SimulatedDaemon::Destroy() {
  if (garbage_.empty()) return false;
  const Garbage garbage = std::move(garbage_.front());
  garbage_.pop_front();
  for (const std::string& name : garbage.pools) {
    node_->pools.erase(name);
    Remove(name);
  }
  for (const core::ChargeId charge : garbage.charges) engine_->GiveBack(charge);
  return true;
}

// --- the fast path -------------------------------------------------------------------------------

void SimulatedDaemon::Deliver(const std::vector<core::Outgoing>& out) {
  for (const core::Outgoing& outgoing : out) {
    const SessionPtr session = Find(outgoing.session);
    if (session != nullptr) (void)session->rings().PushResponse(outgoing.response);
    Step();
  }
}

bool SimulatedDaemon::Pump(shm::SessionId id) {
  const SessionPtr session = Find(id);
  if (session == nullptr || !session->rings().FlushResponses()) return false;
  shm::Request request;
  if (session->rings().PeekRequest(&request) != service::SessionRings::PopResult::kEntry)
    return false;
  std::vector<core::Outgoing> out;
  engine_->HandleRequest(id, request, kNow, &out);
  Step();
  Deliver(out);
  options_.on_answered();
  session->rings().HasDone();
  Step();
  return true;
}

}  // namespace geminid::simulation
