#include "tests/simulation/protocol_client.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collectives/async/pending_state.h"
#include "proto/shm/lease.h"

namespace geminid::simulation {
namespace {

using shm::Residency;

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
    if (choice < 7 && chunk.dirty) return Save(&chunk, /*drops=*/false);
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

}  // namespace geminid::simulation
