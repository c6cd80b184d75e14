#include "tests/simulation/protocol_simulation.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <exception>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/src/chunk_table.h"
#include "client/src/request_port.h"
#include "client/src/segments.h"
#include "client/src/transfers.h"
#include "client/src/wire.h"
#include "collectives/async/pending_state.h"
#include "daemon/os/log.h"
#include "proto/shm/lease.h"
#include "tests/simulation/simulated_device.h"

namespace geminid::simulation {
namespace {

using shm::Residency;

constexpr int kClients = 2;
constexpr uint64_t kChunks = 6;  // of a client, in one pool
constexpr uint64_t kChunkBytes = shm::kSlotBytes;
constexpr uint64_t kArenaBytes = 4 * kChunkBytes;
// What a client may have besides, and for how much of that there is room.
constexpr uint64_t kExtraChunks = 2;
constexpr uint64_t kHostBytes = (kClients * kChunks + kExtraChunks + 1) * kChunkBytes;
constexpr int kLongestEnd = 20'000;
constexpr int kMostDeathsInARow = 3;  // so that a step ends

// What a step of the daemon throws that is its last.
struct Death : std::exception {};

core::SessionSpec SpecOf(int32_t rank) {
  core::SessionSpec spec;
  spec.tenant = "tenant";
  spec.job = "job";
  spec.rank = rank;
  spec.world_size = kClients;
  return spec;
}

std::vector<core::ChunkSpec> Specs(uint64_t chunks) {
  return std::vector<core::ChunkSpec>(chunks, {"c", core::ChunkKind::kGeneric, kChunkBytes, true});
}

void Fill(std::byte* memory, uint64_t value) {
  std::fill_n(reinterpret_cast<uint64_t*>(memory), kChunkBytes / sizeof(value), value);
}

bool Holds(const std::byte* memory, uint64_t value) {
  const std::span words(reinterpret_cast<const uint64_t*>(memory), kChunkBytes / sizeof(value));
  return std::ranges::all_of(words, [value](uint64_t word) { return word == value; });
}

}  // namespace

// One process: what it has mapped, its port, and what it wants of its chunks.
class ProtocolSimulation::Client {
 public:
  Client(ProtocolSimulation* world, int32_t rank) : world_(world), rank_(rank) {}
  ~Client() { End(); }

  // A new session, with chunks of which nothing is on the device.
  void Connect();
  bool connected() const { return port_ != nullptr; }
  // Its connection has been closed.
  bool HungUp() const {
    pollfd attach = {attach_.get(), POLLRDHUP, 0};
    return ::poll(&attach, 1, 0) != 0;
  }
  // It goes, and every answer that is due comes with its port's end.
  void End();

  shm::SessionId id() const { return id_; }
  void Act();
  bool StepPort() { return port_->Step(); }
  void StepLink();
  // While there is no daemon: anything but a call.
  void ActAlone();
  bool IsIdle() const { return due_ == 0 && links_idle(); }
  // At any instant, as another thread of the client: no request.
  void TakeOrReleaseLease();
  void ReleaseAll();
  void SaveAll();
  void CheckHomes();

 private:
  enum class Doing { kNothing, kHolds, kLoads, kMarks, kSaves, kDrops };
  struct Chunk {
    ChunkId id = kNoChunk;
    std::byte* home = nullptr;
    uint64_t value = 0;  // of all its words, in the newest copy
    bool dirty = false;  // its home has older ones
    Doing doing = Doing::kNothing;
    bool leased = false;
    shm::StateWord held{};
    bool lease_is_late = false;  // a mutant's: nobody sees it yet
  };

  bool links_idle() const {
    return device_->link(device::Direction::kHostToDevice).idle() &&
           device_->link(device::Direction::kDeviceToHost).idle();
  }
  std::atomic<uint64_t>& Lease(const Chunk& chunk) const {
    return segments_.client()->lease[Index(chunk.id)];
  }
  shm::StateWord StateOf(const Chunk& chunk) const {
    return shm::StateWord::Decode(segments_.state()->state[Index(chunk.id)].load());
  }
  std::byte* OnDevice(const Chunk& chunk) const {
    return device_->base() + chunk.held.device_offset();
  }
  void ActOnChunk();
  void Take(Chunk* chunk);
  void Release(Chunk* chunk);
  void Check(const Chunk& chunk);
  void Load(Chunk* chunk);
  void Change(Chunk* chunk);
  void Save(Chunk* chunk, bool drops);
  void Drop(Chunk* chunk);
  void AllocateOrFree();
  // Of what is answered once: `then` is told how it ended.
  std::function<void(const absl::Status&)> Due(Chunk* chunk,
                                               std::function<void(const absl::Status&)> then);
  void Transfer(Chunk* chunk, const TransferSpec& spec,
                std::function<void(const absl::Status&)> then);

  ProtocolSimulation* const world_;
  const int32_t rank_;
  shm::SessionId id_{};
  base::UniqueFd attach_;
  Segments segments_;
  base::Mapping arena_;
  std::unique_ptr<SimulatedDevice> device_;
  std::unique_ptr<ChunkTable> table_;
  std::unique_ptr<RequestPort> port_;
  std::unique_ptr<Transfers> transfers_;
  std::array<Chunk, kChunks> chunks_;
  std::vector<shm::ChunkId> extra_;
  uint64_t allocations_ = 0;
  uint64_t next_value_ = 1;
  uint64_t due_ = 0;  // answers
};

template <typename Action>
auto ProtocolSimulation::Call(Action action) {
  if (!calm_ && Chance(4)) die_in_ = static_cast<int>(Pick(8));
  for (bool again = false;; again = true) {
    try {
      auto result = action(again);
      die_in_ = -1;
      return result;
    } catch (const Death&) {
      ++counts_.deaths_within;
      Restart();
    }
  }
}

// --- a client's life -----------------------------------------------------------------------------

void ProtocolSimulation::Client::Connect() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
  attach_ = base::UniqueFd(ends[0]);
  // Nobody dies in this: what a client meets while it attaches is for tests of the service.
  const absl::StatusOr<service::SessionPtr> session =
      world_->daemon_->Open(SpecOf(rank_), base::UniqueFd(ends[1]), kArenaBytes);
  if (!session.ok())
    return world_->Violate(absl::StrCat("no session: ", session.status().message()));
  id_ = (*session)->id();
  const memory::SessionSegments& theirs = (*session)->segments();
  segments_ = *Segments::Map(theirs.state_fd(), theirs.client_fd(), theirs.commit_fd());
  arena_ = *base::Mapping::Map(world_->daemon_->SlabOf(id_), kArenaBytes);
  device_ = std::make_unique<SimulatedDevice>(arena_.data(), kArenaBytes,
                                              world_->mutant_ == Mutant::kFlipBeforeItsData);
  table_ = std::make_unique<ChunkTable>();
  port_ = *RequestPort::CreateWithoutThread(segments_.state(), segments_.client(), {}, "simulated");
  transfers_ =
      std::make_unique<Transfers>(port_.get(), device_.get(), table_.get(), segments_.client());
  const absl::StatusOr<core::Allocation> made =
      world_->daemon_->Allocate(id_, Specs(kChunks), ++allocations_, /*again=*/false);
  if (!made.ok()) return world_->Violate(absl::StrCat("no chunks: ", made.status().message()));
  std::byte* const pool = table_->AddPool(
      made->pool, *base::Mapping::Map((*session)->pools.at(made->pool).fd(), made->pool_bytes));
  for (uint64_t i = 0; i < kChunks; ++i) {
    Chunk& chunk = chunks_[i] = {};
    chunk.id = ChunkId{shm::Index(made->chunks[i])};
    chunk.home = pool + made->home_offsets[i];
    chunk.value = next_value_++;
    Fill(chunk.home, chunk.value);
    table_->Add(chunk.id, ChunkKind::kGeneric, kChunkBytes, made->pool, made->home_offsets[i],
                chunk.home);
  }
}

void ProtocolSimulation::Client::End() {
  if (!connected()) return;
  transfers_->StopCopying();
  port_->Stop(absl::CancelledError("the session ended"));
  while (!links_idle()) StepLink();
  if (due_ != 0) world_->Violate("the end of a port left requests without an answer");
  transfers_.reset();
  port_.reset();
  extra_.clear();
  chunks_ = {};
}

std::function<void(const absl::Status&)> ProtocolSimulation::Client::Due(
    Chunk* chunk, std::function<void(const absl::Status&)> then) {
  ++due_;
  return [this, chunk, then = std::move(then), answers = 0](const absl::Status& status) mutable {
    if (++answers > 1) return world_->Violate("a request was answered twice");
    --due_;
    chunk->doing = chunk->leased ? Doing::kHolds : Doing::kNothing;
    then(status);
  };
}

// --- leases --------------------------------------------------------------------------------------

void ProtocolSimulation::Client::Take(Chunk* chunk) {
  if (world_->mutant_ == Mutant::kSkippedFence) {
    chunk->held = StateOf(*chunk);
    chunk->leased = chunk->lease_is_late = chunk->held.residency == Residency::kResident;
  } else {
    chunk->leased = shm::TryAcquireLease(segments_.state()->state[Index(chunk->id)], Lease(*chunk),
                                         &chunk->held);
  }
  if (chunk->leased) chunk->doing = Doing::kHolds;
}

void ProtocolSimulation::Client::Release(Chunk* chunk) {
  shm::ReleaseLease(Lease(*chunk));
  chunk->leased = chunk->lease_is_late = false;
  chunk->doing = Doing::kNothing;
}

void ProtocolSimulation::Client::Check(const Chunk& chunk) {
  ++world_->counts_.checks;
  const shm::StateWord now = StateOf(chunk);
  if (now.generation != chunk.held.generation || now.slot != chunk.held.slot) {
    world_->Violate("a chunk that was held has left its place");
  }
  if (!Holds(OnDevice(chunk), chunk.value)) {
    world_->Violate("a chunk that is held has other bytes than were written");
  }
}

void ProtocolSimulation::Client::TakeOrReleaseLease() {
  if (!connected()) return;
  Chunk& chunk = chunks_[world_->Pick(kChunks)];
  if (chunk.doing == Doing::kNothing) {
    Take(&chunk);
  } else if (chunk.doing == Doing::kHolds) {
    Check(chunk);
    Release(&chunk);
  }
}

void ProtocolSimulation::Client::ReleaseAll() {
  for (Chunk& chunk : chunks_) {
    if (chunk.doing == Doing::kHolds) Release(&chunk);
  }
}

// --- requests ------------------------------------------------------------------------------------

void ProtocolSimulation::Client::Transfer(Chunk* chunk, const TransferSpec& spec,
                                          std::function<void(const absl::Status&)> then) {
  const auto outcome = transfers_->NewOutcome();
  outcome->Then(Due(chunk, std::move(then)));
  transfers_->Start(spec, outcome);
}

void ProtocolSimulation::Client::Load(Chunk* chunk) {
  chunk->doing = Doing::kLoads;
  TransferSpec spec = {.source = chunk->id, .destination = chunk->id, .bytes = kChunkBytes};
  spec.allocate_destination = spec.may_evict = spec.publish_when_done = true;
  Transfer(chunk, spec, [this](const absl::Status& status) {
    ++(status.ok() ? world_->counts_.loads : world_->counts_.loads_refused);
  });
}

void ProtocolSimulation::Client::Change(Chunk* chunk) {
  chunk->doing = Doing::kMarks;
  chunk->value = next_value_++;
  Fill(OnDevice(*chunk), chunk->value);
  shm::Request request = MakeRequest(shm::RequestOp::kTransition, chunk->id);
  request.argument = static_cast<uint64_t>(shm::ChunkState::kHold) | shm::kDirtyBit;
  const auto due = Due(chunk, [this, chunk](const absl::Status& status) {
    if (!connected() || absl::IsCancelled(status)) return;
    if (!status.ok()) world_->Violate("a change of a held chunk was refused");
    chunk->dirty = true;
    ++world_->counts_.changes;
  });
  port_->Submit(request, [due](const Answer& answer) { due(answer.status); });
}

void ProtocolSimulation::Client::Save(Chunk* chunk, bool drops) {
  chunk->doing = Doing::kSaves;
  TransferSpec spec = {.source = chunk->id, .destination = chunk->id, .bytes = kChunkBytes};
  spec.drop_source_when_done = drops;
  Transfer(chunk, spec, [this, chunk, drops](const absl::Status& status) {
    if (absl::IsCancelled(status)) return;
    // A thread may have taken it before it could be dropped: the copy was made all the same.
    if (!status.ok() && !drops) {
      return world_->Violate(absl::StrCat("a write-back was refused: ", status.message()));
    }
    if (!Holds(chunk->home, chunk->value)) {
      return world_->Violate("a home has other bytes after its write-back");
    }
    chunk->dirty = false;
    ++world_->counts_.write_backs;
  });
}

void ProtocolSimulation::Client::Drop(Chunk* chunk) {
  chunk->doing = Doing::kDrops;
  const auto due = Due(
      chunk, [this](const absl::Status& status) { world_->counts_.drops += status.ok() ? 1 : 0; });
  port_->Submit(MakeRequest(shm::RequestOp::kDrop, chunk->id),
                [due](const Answer& answer) { due(answer.status); });
}

void ProtocolSimulation::Client::AllocateOrFree() {
  if (extra_.empty()) {
    const uint64_t number = ++allocations_;
    if (world_->Chance(10)) world_->few_.emplace(0);
    const auto made = world_->Call([&](bool again) {
      return world_->daemon_->Allocate(id_, Specs(kExtraChunks), number, again);
    });
    world_->counts_.shortages += world_->few_.has_value() && !made.ok() ? 1 : 0;
    world_->few_.reset();
    if (made.ok()) extra_ = made->chunks;
    ++(made.ok() ? world_->counts_.allocations : world_->counts_.allocations_refused);
    return;
  }
  const absl::Status freed =
      world_->Call([&](bool again) { return world_->daemon_->Free(id_, extra_, again); });
  if (!freed.ok()) world_->Violate(absl::StrCat("not freed: ", freed.message()));
  extra_.clear();
}

void ProtocolSimulation::Client::Act() {
  if (!connected()) return;
  if (world_->Chance(5)) return AllocateOrFree();
  ActOnChunk();
}

void ProtocolSimulation::Client::ActAlone() {
  if (!connected()) return;
  switch (world_->Pick(6)) {
    case 0:
      return TakeOrReleaseLease();
    case 1:
      return ActOnChunk();
    case 2:
      (void)StepPort();
      return;
    default:
      return StepLink();
  }
}

void ProtocolSimulation::Client::ActOnChunk() {
  Chunk& chunk = chunks_[world_->Pick(kChunks)];
  if (chunk.lease_is_late) {
    shm::StateWord ignored;
    (void)shm::TryAcquireLease(segments_.state()->state[Index(chunk.id)], Lease(chunk), &ignored);
    chunk.lease_is_late = false;
  }
  if (chunk.doing == Doing::kHolds) {
    Check(chunk);
    const uint64_t choice = world_->Pick(10);
    if (choice < 3) return Change(&chunk);
    if (choice < 5 && chunk.dirty) return Save(&chunk, /*drops=*/false);
    if (choice < 9) Release(&chunk);
    return;
  }
  if (chunk.doing != Doing::kNothing) return;
  const Residency residency = StateOf(chunk).residency;
  if (residency == Residency::kAbsent) {
    if (chunk.dirty) return world_->Violate("the only copy of a chunk is gone");
    return Load(&chunk);
  }
  if (residency != Residency::kResident) return;
  const uint64_t choice = world_->Pick(10);
  if (choice < 6) return Take(&chunk);
  if (choice < 8 && chunk.dirty) return Save(&chunk, /*drops=*/true);
  if (choice < 9 && !chunk.dirty) return Drop(&chunk);
}

void ProtocolSimulation::Client::StepLink() {
  device_->link(static_cast<device::Direction>(world_->Pick(device::kDirections))).Step();
}

void ProtocolSimulation::Client::SaveAll() {
  for (Chunk& chunk : chunks_) {
    if (!chunk.dirty) continue;
    if (StateOf(chunk).residency != Residency::kResident) {
      return world_->Violate("a chunk that was changed is nowhere");
    }
    Save(&chunk, /*drops=*/false);
  }
}

void ProtocolSimulation::Client::CheckHomes() {
  for (const Chunk& chunk : chunks_) {
    if (!Holds(chunk.home, chunk.value)) world_->Violate("a home is not what was last written");
  }
}

// --- the world -----------------------------------------------------------------------------------

ProtocolSimulation::ProtocolSimulation(uint32_t seed, Mutant mutant)
    : random_(seed), mutant_(mutant) {
  os::ConfigureLog(os::LogLevel::kError, os::LogFormat::kText);  // a shortage here is no news
  options_.engine.host_capacity_bytes = kHostBytes;
  options_.engine.devices = {core::HostDevice(shm::DeviceIndex{0}, kClients * kArenaBytes)};
  options_.engine.max_sessions = 2 * kClients;
  options_.engine.transfers.tickets_in_flight = static_cast<uint32_t>(1 + Pick(3));
  options_.on_step = [this] { OnDaemonStep(); };
  options_.on_take_over = [this] {
    if (!calm_ && Chance(20)) few_.emplace(static_cast<int>(Pick(2 * kClients)));
  };
  options_.pause = [this](core::Duration) {
    ++counts_.shortages;
    few_.reset();
  };
  options_.repeats_answered = mutant == Mutant::kRepeatedAnswered;
  options_.loses_resends = mutant == Mutant::kLostResend;
  options_.credits_early = mutant == Mutant::kCreditBeforeItsHole;
  calm_ = true;
  MakeDaemon();
  for (int32_t rank = 0; rank < kClients; ++rank) {
    clients_.push_back(std::make_unique<Client>(this, rank));
  }
  MeetSessions();
  calm_ = false;
}

ProtocolSimulation::~ProtocolSimulation() {
  calm_ = true;
  clients_.clear();
}

void ProtocolSimulation::Violate(const std::string& what) {
  if (violation_.empty()) violation_ = what;
}

void ProtocolSimulation::OnDaemonStep() {
  if (calm_) return;
  if (die_in_ == 0) {
    die_in_ = -1;
    throw Death();
  }
  if (die_in_ > 0) --die_in_;
  if (!starting_ && Chance(20)) clients_[Pick(clients_.size())]->TakeOrReleaseLease();
}

void ProtocolSimulation::MakeDaemon() {
  few_.reset();
  if (daemon_ != nullptr) counts_.evictions += daemon_->evictions();
  daemon_ = std::make_unique<SimulatedDaemon>(options_, &node_);
  const absl::Status started = daemon_->Start();
  few_.reset();
  if (!started.ok()) Violate(absl::StrCat("a daemon did not start: ", started.message()));
}

void ProtocolSimulation::Restart() {
  ++counts_.deaths;
  starting_ = true;
  for (int deaths = 0;; ++deaths) {
    const bool dies = deaths < kMostDeathsInARow && Chance(10);
    die_in_ = dies ? static_cast<int>(Pick(30)) : -1;
    ActWithoutDaemon();
    try {
      MakeDaemon();
      break;
    } catch (const Death&) {
      ++counts_.deaths_starting;
    }
  }
  starting_ = false;
  die_in_ = -1;
  MeetSessions();
}

void ProtocolSimulation::ActWithoutDaemon() {
  if (calm_) return;
  for (uint64_t acts = Pick(60); acts > 0; --acts) {
    clients_[Pick(clients_.size())]->ActAlone();
    ++counts_.acts_without_daemon;
  }
}

// Who was hung up on begins anew.
void ProtocolSimulation::MeetSessions() {
  const bool was_calm = std::exchange(calm_, true);
  for (const auto& client : clients_) {
    if (client->connected() && !client->HungUp()) continue;
    if (client->connected()) {
      if (!holder_lost_) Violate("a session ended although its holder lived");
      ++counts_.sessions_lost;
      client->End();
    }
    client->Connect();
  }
  calm_ = was_calm;
  holder_lost_ = false;
}

// The daemon notices, and has another one keep everything; unless it dies as well.
void ProtocolSimulation::HolderDies() {
  ++counts_.holder_deaths;
  node_.shelf = holder::Shelf();
  if (Chance(30)) die_in_ = static_cast<int>(Pick(24));
  try {
    daemon_->KeepAll();
    die_in_ = -1;
  } catch (const Death&) {
    // What was not kept is nobody's: the connection ends with its last descriptor.
    holder_lost_ = true;
    Restart();
  }
}

void ProtocolSimulation::CheckMemory() {
  if (node_.PoolBytes() > kHostBytes) Violate("there is more host memory than the node has");
}

void ProtocolSimulation::Step() {
  Client& client = *clients_[Pick(clients_.size())];
  const uint64_t action = Pick(1000);
  if (action < 250) {
    client.Act();
  } else if (action < 450) {
    client.StepPort();
  } else if (action < 700) {
    client.StepLink();
  } else if (action < 970) {
    const shm::SessionId id = client.id();
    (void)Call([&](bool) { return daemon_->Pump(id); });
  } else if (action < 990) {
    (void)Call([&](bool) { return daemon_->Destroy(); });
  } else if (action < 998) {
    Restart();
  } else {
    HolderDies();
  }
  CheckMemory();
}

// Every client has said of all its copies that they are done.
void ProtocolSimulation::CheckLink() {
  for (const shm::Direction direction :
       {shm::Direction::kHostToDevice, shm::Direction::kDeviceToHost}) {
    const core::InFlight flight =
        daemon_->engine().transfers().FlightOf(shm::DeviceIndex{0}, direction);
    if (flight.tickets != 0) Violate("a copy is under way that no client knows");
  }
}

bool ProtocolSimulation::IsIdle() {
  return std::ranges::all_of(clients_, [](const auto& client) { return client->IsIdle(); });
}

void ProtocolSimulation::Finish() {
  if (!violation_.empty()) return;
  calm_ = true;
  const auto settle = [this] {
    bool moves = true;
    for (int i = 0; i < kLongestEnd && (moves || !IsIdle()); ++i) {
      moves = false;
      for (const auto& client : clients_) {
        moves = client->StepPort() || moves;
        client->StepLink();
        moves = daemon_->Pump(client->id()) || moves;
      }
    }
    if (!IsIdle()) Violate("a request was never answered");
  };
  settle();
  if (!violation_.empty()) return;
  for (const auto& client : clients_) {
    client->ReleaseAll();
    client->SaveAll();
  }
  settle();
  for (const auto& client : clients_) client->CheckHomes();
  CheckLink();
  counts_.evictions += daemon_->evictions();
  for (const auto& client : clients_) {
    if (!daemon_->Close(client->id()).ok()) Violate("a session could not be ended");
    client->End();
  }
  while (daemon_->Destroy()) {
  }
  if (!daemon_->engine().ledger().Lines().empty() || !node_.pools.empty() ||
      node_.shelf.items().size() != 1 || !daemon_->engine().Check().ok()) {
    Violate("something was left behind");
  }
}

}  // namespace geminid::simulation
