// The part of the hub that outlives the daemon: what is kept for a successor, and taking over what
// a predecessor left.
//
// Everything is kept from the moment it exists, and given up after it was destroyed. So what the
// store has is what there was, and perhaps memory that was being made or destroyed: that is taken
// back from its client, who was not told of it yet, or knows that it goes.
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/memfd.h"
#include "base/pages.h"
#include "base/status_macros.h"
#include "base/system_error.h"
#include "daemon/memory/host_arena.h"
#include "daemon/os/crash_note.h"
#include "daemon/os/log.h"
#include "daemon/service/sessions/hub.h"

namespace geminid::service {
namespace {

// What there was to hand out, where nobody chose it: after a restart the machine would say less.
struct NodeRecord {
  uint32_t magic;
  uint32_t version;
  uint64_t devices;
  uint64_t host_capacity_bytes;
  uint64_t device_capacity_bytes[shm::kMaxDevices];
  std::atomic<uint64_t> drained;  // 1: by the operator
  // 1: the last daemon, and its successor has not seen it yet. Zero where an older one wrote this.
  std::atomic<uint64_t> crashed;
};
constexpr uint32_t kNodeMagic = 0x444f4e47;  // "GNOD"
constexpr uint32_t kNodeVersion = 1;

holder::DescriptorStore* StoreOr(holder::DescriptorStore* store) {
  static holder::NoStore* const none = new holder::NoStore;
  return store == nullptr ? none : store;
}

absl::StatusOr<base::UniqueFd> MakeNode(const core::EngineOptions& engine) {
  const uint64_t bytes = base::RoundUpToPage(sizeof(NodeRecord));
  GEMINID_ASSIGN_OR_RETURN(base::UniqueFd fd, base::CreateSealedMemfd("geminid-node", bytes));
  GEMINID_ASSIGN_OR_RETURN(const base::Mapping mapping, base::Mapping::Map(fd, bytes));
  auto* node = reinterpret_cast<NodeRecord*>(mapping.data());
  node->version = kNodeVersion;
  node->host_capacity_bytes = engine.host_capacity_bytes;
  node->devices = engine.devices.size();
  for (size_t i = 0; i < engine.devices.size() && i < shm::kMaxDevices; ++i) {
    node->device_capacity_bytes[i] = engine.devices[i].capacity_bytes;
  }
  node->magic = kNodeMagic;
  return fd;
}

// Of no bytes: there is none of this release.
absl::StatusOr<base::Mapping> MapNode(const base::UniqueFd& fd) {
  const uint64_t bytes = base::RoundUpToPage(sizeof(NodeRecord));
  if (!fd.valid() || !base::CheckSealed(fd, bytes).ok()) return base::Mapping();
  GEMINID_ASSIGN_OR_RETURN(base::Mapping mapping, base::Mapping::Map(fd, bytes));
  const auto& node = *reinterpret_cast<const NodeRecord*>(mapping.data());
  if (node.magic != kNodeMagic || node.version != kNodeVersion) return base::Mapping();
  return mapping;
}

void UseNode(const base::Mapping& memory, HubOptions* options) {
  const auto& node = *reinterpret_cast<const NodeRecord*>(memory.data());
  core::EngineOptions& engine = options->engine;
  if (options->host_capacity_is_default) engine.host_capacity_bytes = node.host_capacity_bytes;
  if (!options->device_capacities_are_default || node.devices != engine.devices.size()) return;
  for (size_t i = 0; i < engine.devices.size(); ++i) {
    engine.devices[i].capacity_bytes = node.device_capacity_bytes[i];
  }
}

std::atomic<uint64_t>* CrashNoteIn(const base::Mapping& node) {
  if (node.data() == nullptr) return nullptr;
  return &reinterpret_cast<NodeRecord*>(node.data())->crashed;
}

absl::StatusOr<uint64_t> SizeOf(const base::UniqueFd& fd) {
  struct stat file = {};
  if (::fstat(fd.get(), &file) != 0) return base::SystemError(errno, "fstat", "what was kept");
  return static_cast<uint64_t>(file.st_size);
}

// What was kept is damaged: every other daemon would find the same.
bool IsDamage(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsAborted(status) || absl::IsInvalidArgument(status);
}

// The client reads the end of its connection, whoever else has descriptors of it.
void HangUp(const Keepsakes::OfSession& kept) {
  const auto socket = kept.kinds.find(kKeptSocket);
  if (socket != kept.kinds.end()) ::shutdown(socket->second.get(), SHUT_RDWR);
}

void GiveUp(holder::DescriptorStore* store, const Keepsakes::OfSession& kept) {
  HangUp(kept);
  for (const auto& [id, pool] : kept.pools) base::Revoke(pool).IgnoreError();
  for (const auto& [number, slab] : kept.slabs) base::Revoke(slab).IgnoreError();
  for (const std::string& name : kept.names) store->Remove(name).IgnoreError();
}

void GiveUpAll(holder::DescriptorStore* store, const Keepsakes& kept) {
  for (const auto& [id, session] : kept.sessions) GiveUp(store, session);
  for (const std::string& name : kept.needless) store->Remove(name).IgnoreError();
  store->Remove(kKeptManifest).IgnoreError();
  store->Remove(kKeptNode).IgnoreError();
}

uint64_t BytesOf(const std::vector<memory::HostPool>& slabs) {
  uint64_t bytes = 0;
  for (const memory::HostPool& slab : slabs) bytes += slab.bytes();
  return bytes;
}

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

// Slabs in order, up to the first that is missing: what was being destroyed has no bytes.
Hub::KeptMemory TakeMemory(Keepsakes::OfSession* kept) {
  Hub::KeptMemory memory;
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

}  // namespace

Hub::Hub(const HubOptions& options, base::UniqueFd manifest_fd, base::Mapping manifest_memory,
         core::Manifest manifest)
    : options_(options),
      store_(StoreOr(options.store)),
      manifest_fd_(std::move(manifest_fd)),
      manifest_memory_(std::move(manifest_memory)),
      daemon_epoch_(manifest.epoch()),
      in_flight_(options.limits),
      engine_(std::make_unique<core::Engine>(options.engine, &tables_, std::move(manifest))),
      plan_memory_("plan_memory", options.plan_memory_bytes),
      reaper_([this](Garbage garbage) { Destroy(std::move(garbage)); }) {}

absl::StatusOr<std::unique_ptr<Hub>> Hub::Create(const HubOptions& options) {
  holder::DescriptorStore* const store = StoreOr(options.store);
  GEMINID_ASSIGN_OR_RETURN(std::vector<holder::KeptDescriptor> listed, store->List());
  Keepsakes kept = Sort(std::move(listed));
  if (kept.manifest.valid()) {
    absl::StatusOr<std::unique_ptr<Hub>> hub = TakeOver(options, &kept);
    if (hub.ok() || !IsDamage(hub.status())) return hub;
    os::Log(os::LogLevel::kError, "what an earlier daemon left is given up; its sessions end",
            {{"why", std::string(hub.status().message())}});
  }
  GiveUpAll(store, kept);
  return CreateNew(options);
}

absl::StatusOr<std::unique_ptr<Hub>> Hub::CreateNew(const HubOptions& options) {
  const size_t bytes = core::Manifest::BytesFor(options.chunk_records);
  const uint64_t rounded = base::RoundUpToPage(bytes);
  GEMINID_ASSIGN_OR_RETURN(base::UniqueFd fd, base::CreateSealedMemfd("geminid-manifest", rounded));
  GEMINID_ASSIGN_OR_RETURN(base::Mapping mapping, base::Mapping::Map(fd, rounded));
  GEMINID_ASSIGN_OR_RETURN(
      core::Manifest manifest,
      core::Manifest::Create(std::span(mapping.data(), bytes), options.daemon_epoch));
  std::unique_ptr<Hub> hub(
      new Hub(options, std::move(fd), std::move(mapping), std::move(manifest)));
  GEMINID_ASSIGN_OR_RETURN(hub->node_fd_, MakeNode(options.engine));
  GEMINID_ASSIGN_OR_RETURN(hub->node_memory_, MapNode(hub->node_fd_));
  hub->crash_note_ = std::make_unique<os::CrashNote>(CrashNoteIn(hub->node_memory_));
  // Nothing counts without a manifest: it comes last.
  hub->Keep(kKeptNode, hub->node_fd_.get());
  hub->Keep(kKeptManifest, hub->manifest_fd_.get());
  if (absl::Status status = hub->waker_.Start(); !status.ok()) return status;
  if (absl::Status status = hub->reaper_.Start(); !status.ok()) return status;
  return hub;
}

// The manifest and the node's record, of which nothing is taken from `kept` on an error.
absl::StatusOr<std::unique_ptr<Hub>> Hub::Adopted(const HubOptions& wanted, Keepsakes* kept) {
  HubOptions options = wanted;
  GEMINID_ASSIGN_OR_RETURN(base::Mapping node, MapNode(kept->node));
  if (node.data() != nullptr) UseNode(node, &options);
  GEMINID_ASSIGN_OR_RETURN(const uint64_t bytes, SizeOf(kept->manifest));
  GEMINID_RETURN_IF_ERROR(base::CheckSealed(kept->manifest, bytes));
  GEMINID_ASSIGN_OR_RETURN(base::Mapping mapping, base::Mapping::Map(kept->manifest, bytes));
  // What is taken over may be what ends this daemon, too.
  std::atomic<uint64_t>* const crash_note = CrashNoteIn(node);
  const bool crashed = crash_note != nullptr && crash_note->exchange(0) != 0;
  auto note = std::make_unique<os::CrashNote>(crash_note);
  GEMINID_ASSIGN_OR_RETURN(
      core::Manifest manifest,
      core::Manifest::Open(std::span(mapping.data(), bytes), options.daemon_epoch, crashed));
  std::unique_ptr<Hub> hub(
      new Hub(options, std::move(kept->manifest), std::move(mapping), std::move(manifest)));
  hub->node_fd_ = std::move(kept->node);
  hub->node_memory_ = std::move(node);
  hub->crash_note_ = std::move(note);
  return hub;
}

absl::StatusOr<std::unique_ptr<Hub>> Hub::TakeOver(const HubOptions& options, Keepsakes* kept) {
  const core::Time began = Now();
  Shortage shortage(options.pause);
  std::unique_ptr<Hub> hub;
  GEMINID_RETURN_IF_ERROR(shortage.Outlast([&]() -> absl::Status {
    GEMINID_ASSIGN_OR_RETURN(hub, Adopted(options, kept));
    return absl::OkStatus();
  }));
  if (hub->IsDrainNoted()) hub->engine_->Drain(true, Now());
  const auto leave_to_the_next = [&hub](const absl::Status& why) {
    hub->engine_->HasServed();  // it was not the manifest's fault
    return why;
  };
  absl::Status started = shortage.Outlast([&] { return hub->waker_.Start(); });
  if (!started.ok()) return leave_to_the_next(started);
  started = shortage.Outlast([&] { return hub->reaper_.Start(); });
  if (!started.ok()) return leave_to_the_next(started);
  Garbage garbage;
  size_t ended = 0;
  for (auto& [id, session] : kept->sessions) {
    absl::Status status = shortage.Outlast([&] { return hub->Adopt(id, &session, &garbage); });
    if (status.ok()) continue;
    if (!IsDamage(status)) return leave_to_the_next(status);
    ++ended;
    os::Log(os::LogLevel::kError, "a session could not be taken over, and ends",
            {{"session", absl::StrCat(shm::Value(id))}, {"why", std::string(status.message())}});
    GiveUp(hub->store_, session);
  }
  std::vector<core::Outgoing> out;
  hub->engine_->FinishRestore(Now(), &out);
  if (absl::Status status = hub->engine_->Check(); !status.ok()) {
    hub->RevokeAll();
    hub->Destroy(std::move(garbage));
    return absl::DataLossError(status.message());
  }
  ToWake to_wake;
  hub->Deliver(out, &to_wake);
  // The earlier daemon may have answered, and died before it woke the client.
  for (const auto& [id, session] : hub->tables_.sessions) AddIfAsleep(session.get(), &to_wake);
  hub->Wake(to_wake);
  hub->Destroy(std::move(garbage));
  for (const std::string& name : kept->needless) hub->store_->Remove(name).IgnoreError();
  hub->take_over_ = {.sessions = hub->tables_.sessions.size(),
                     .lost = ended,
                     .seconds = (Now() - began).seconds()};
  os::Log(os::LogLevel::kInfo, "took over from an earlier daemon",
          {{"sessions", absl::StrCat(hub->tables_.sessions.size())},
           {"seconds", absl::StrCat(hub->take_over_.seconds)},
           {"chunks", absl::StrCat(hub->engine_->manifest().used_records())},
           {"lost_sessions", absl::StrCat(ended)},
           {"epoch", absl::StrCat(hub->daemon_epoch_)}});
  return hub;
}

// What the sessions hold that were taken over is no longer in what was kept.
void Hub::RevokeAll() {
  for (const auto& [id, session] : tables_.sessions) {
    for (const auto& [pool_id, pool] : session->pools) pool.Revoke().IgnoreError();
    if (session->arena != nullptr)
      session->arena->Revoke(base::UniqueFd(), [](const absl::Status&) {});
    Tell(session, shm::Phase::kGone, Sleeper::End::kAll);
  }
}

// Whose session it is. What it has is not touched.
absl::StatusOr<core::SessionFacts> Hub::CheckKept(shm::SessionId id,
                                                  const Keepsakes::OfSession& kept) const {
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
  if (!books.welcomed()) return absl::DataLossError("its client was never told of it");
  if (shm::Value(facts.device) < engine_->devices().size()) return facts;
  return absl::FailedPreconditionError(
      absl::StrCat("a session of job ", facts.spec.job, " is on device ", shm::Value(facts.device),
                   ", which the configuration does not have; start "
                   "with that device"));
}

// What the engine knows becomes the session's; the rest was being made or destroyed.
void Hub::GiveMemory(ClientSession* session, KeptMemory memory, Garbage* garbage) {
  const shm::SessionId id = session->id();
  std::set<shm::PoolId> used;
  for (const core::PoolSnapshot& pool : engine_->Pools({id, core::kNoPool})) {
    if (pool.session == id) used.insert(pool.pool);
  }
  for (auto& [pool_id, pool] : memory.pools) {
    if (used.contains(pool_id)) {
      session->pools.emplace(pool_id, std::move(pool));
    } else {
      garbage->pools.push_back(std::move(pool));
      garbage->keepsakes.push_back(PoolName(id, pool_id));
    }
  }
  if (memory.has_arena) {
    session->arena = memory::HostArena::Adopt(std::move(memory.slabs));
    return;
  }
  for (uint32_t i = 0; i < memory.slabs.size(); ++i) {
    garbage->pools.push_back(std::move(memory.slabs[i]));
    garbage->keepsakes.push_back(SlabName(id, i));
  }
}

// On an error, `kept` has all there is still, or, of a damaged session, what is not revoked yet.
absl::Status Hub::Adopt(shm::SessionId id, Keepsakes::OfSession* kept, Garbage* garbage) {
  GEMINID_ASSIGN_OR_RETURN(const core::SessionFacts facts, CheckKept(id, *kept));
  GEMINID_ASSIGN_OR_RETURN(
      SessionPtr session,
      ClientSession::Adopt(facts, daemon_epoch_, engine_->devices()[shm::Value(facts.device)], kept,
                           &in_flight_));
  GEMINID_ASSIGN_OR_RETURN(const core::SessionBooks books,
                           core::SessionBooks::Open(session->books_memory()));
  core::InheritedSession inherited(books);
  KeptMemory memory = TakeMemory(kept);
  // An arena that the books do not know was being made or destroyed.
  memory.has_arena = books.arena_bytes() > 0;
  if (memory.has_arena) inherited.arena_bytes = BytesOf(memory.slabs);
  for (const auto& [pool_id, pool] : memory.pools) inherited.pools[pool_id] = pool.bytes();
  inherited.state_words = StateWordsOf(*session);
  inherited.request_in_doubt = session->HasRequest();
  tables_.sessions[id] = session;
  absl::Status status = engine_->RestoreSession(inherited, Now());
  if (status.ok()) {
    session->ended = books.KeptUntil().has_value();
    // A successor that was not told of it tries again.
    if (session->ended) waker_.End(session, Sleeper::End::kAll);
    GiveMemory(session.get(), std::move(memory), garbage);
    LoadPlan(session, std::move(kept->plans), garbage);
    return absl::OkStatus();
  }
  tables_.sessions.erase(id);
  if (absl::IsResourceExhausted(status)) {
    return absl::FailedPreconditionError(
        absl::StrCat("the configuration gives less than job ", facts.spec.job, " already has: ",
                     std::string(status.message()), "; raise host_memory or the device's memory"));
  }
  for (const auto& [pool_id, pool] : memory.pools) pool.Revoke().IgnoreError();
  for (const memory::HostPool& slab : memory.slabs) slab.Revoke().IgnoreError();
  Tell(session, shm::Phase::kGone, Sleeper::End::kAll);
  return status;
}

void Hub::HasServed() {
  std::lock_guard<std::mutex> lock(mutex_);
  engine_->HasServed();
}

bool Hub::IsDrainNoted() const {
  if (node_memory_.data() == nullptr) return false;
  return reinterpret_cast<const NodeRecord*>(node_memory_.data())->drained.load() != 0;
}

void Hub::NoteDrain(bool drained) const {
  if (node_memory_.data() == nullptr) return;
  reinterpret_cast<NodeRecord*>(node_memory_.data())->drained.store(drained ? 1 : 0);
}

}  // namespace geminid::service
