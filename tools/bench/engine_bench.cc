// What one request costs the daemon, however many sessions and chunks there are beside it.
#include <benchmark/benchmark.h>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/core/engine.h"

namespace geminid {
namespace {

using core::ChunkId;
using core::SessionId;

constexpr uint32_t kChunks = shm::kMaxChunks;
constexpr uint64_t kResident = kChunks / 2;
constexpr uint32_t kMostSessions = 256;

// Clients that hold no lease and complete every ticket.
class QuietTables : public core::Tables {
 public:
  void PublishState(SessionId, ChunkId, uint64_t) override {}
  uint64_t ReadLease(SessionId, ChunkId) override { return 0; }
  uint64_t ReadCompletion(SessionId, uint16_t) override { return completed; }
  void PublishYield(SessionId, bool) override {}
  uint64_t completed = 0;
};

// Sessions of one tenant each, with as many chunks as a session can have, half of them in its
// arena, which is full.
class World {
 public:
  static World& Instance() {
    static World world;
    return world;
  }

  // As many sessions as asked for, at most kMostSessions; there are never fewer than before.
  void Grow(size_t sessions) {
    while (sessions_.size() < sessions) AddSession();
  }
  // Of the first session, if each was placed that this returned: they leave in the order they came.
  ChunkId NextAbsent() { return ChunkId{next_++ % kChunks}; }
  SessionId first() const { return sessions_.front(); }

  // The answer, if there is one.
  shm::Response Send(SessionId session, shm::RequestOp op, ChunkId chunk, uint16_t flags,
                     uint64_t argument, uint64_t bytes = 0) {
    shm::Request request{};
    request.request_id = ++requests_;
    request.op = op;
    request.flags = flags;
    request.cause = core::TransferCause::kDemand;
    request.deadline_moment = core::kNoDeadline;
    request.source = chunk;
    request.destination = chunk;
    request.bytes = bytes;
    request.argument = argument;
    out_.clear();
    now_ = now_ + core::Duration::Nanoseconds(1000);
    engine_->HandleRequest(session, request, now_, &out_);
    return out_.empty() ? shm::Response{} : out_.front().response;
  }
  // Two requests.
  bool PlaceAndPublish(SessionId session, ChunkId chunk) {
    const shm::Response placed =
        Send(session, shm::RequestOp::kAllocateExtent, chunk, shm::kMayEvict, shm::kAnyOffset);
    const shm::Response published = Send(session, shm::RequestOp::kPublish, chunk, 0, 0);
    return placed.op == shm::ResponseOp::kDone && published.op == shm::ResponseOp::kDone;
  }
  // Two requests.
  bool WriteBack(SessionId session, ChunkId chunk) {
    const shm::Response ticket =
        Send(session, shm::RequestOp::kTransfer, chunk, 0, 0, shm::kSlotBytes);
    if (ticket.op != shm::ResponseOp::kTicket) return false;
    tables_.completed = ticket.ticket;
    Send(session, shm::RequestOp::kTransferDone, shm::kNoChunk, 0, ticket.ticket);
    return out_.empty();
  }

 private:
  World() {
    // Each tenant has to leave as many free as it has.
    constexpr uint32_t kRecords = (kMostSessions + 1) * kChunks;
    blocks_ = std::vector<Block>(core::Manifest::BytesFor(kRecords) / sizeof(Block));
    core::EngineOptions options;
    options.host_capacity_bytes = uint64_t{1} << 50;
    options.devices = {core::HostDevice(core::DeviceIndex{0}, uint64_t{1} << 50)};
    options.max_sessions = kMostSessions + 1;
    core::Manifest manifest = *core::Manifest::Create(
        {blocks_.front().bytes, blocks_.size() * sizeof(Block)}, /*epoch=*/1);
    engine_ = std::make_unique<core::Engine>(options, &tables_, std::move(manifest));
  }

  void AddSession() {
    core::SessionSpec spec;
    spec.tenant = absl::StrCat("uid:", sessions_.size());
    spec.job = "bench";
    const SessionId session = *engine_->OpenSession(spec, now_);
    (void)engine_->CreateArena(session, kResident * shm::kSlotBytes);
    const core::ChunkSpec chunk{"", core::ChunkKind::kGeneric, shm::kSlotBytes, true};
    (void)engine_->Allocate(session, std::vector<core::ChunkSpec>(kChunks, chunk));
    for (uint32_t i = 0; i < kResident; ++i) PlaceAndPublish(session, ChunkId{i});
    sessions_.push_back(session);
  }

  struct alignas(64) Block {
    std::byte bytes[64];
  };
  QuietTables tables_;
  std::vector<Block> blocks_;
  std::unique_ptr<core::Engine> engine_;
  std::vector<SessionId> sessions_;
  core::Time now_ = core::Time::FromNanoseconds(1);
  uint64_t requests_ = 0;
  uint32_t next_ = kResident;
  std::vector<core::Outgoing> out_;
};

// One session works; all the others are there, as full as it is. Four requests: a chunk comes and
// another one leaves for it, it is published, and it is copied to its home.
void BM_FourRequests(benchmark::State& state) {
  World& world = World::Instance();
  world.Grow(static_cast<size_t>(state.range(0)));
  for (auto _ : state) {
    const ChunkId chunk = world.NextAbsent();
    if (!world.PlaceAndPublish(world.first(), chunk) || !world.WriteBack(world.first(), chunk)) {
      state.SkipWithError("a request was refused");
      break;
    }
  }
}
BENCHMARK(BM_FourRequests)
    ->ArgName("sessions")
    ->Arg(1)
    ->Arg(4)
    ->Arg(16)
    ->Arg(64)
    ->Arg(kMostSessions);

}  // namespace
}  // namespace geminid

BENCHMARK_MAIN();
