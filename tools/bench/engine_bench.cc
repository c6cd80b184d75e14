// The daemon's cost of one request, for several numbers of other sessions and chunks. Each number
// of sessions has a world of its own, so that --benchmark_enable_random_interleaving can compare
// them within one run. All together take 10 GiB, or 0.2 GiB in the smallest form.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/core/engine/engine.h"
#include "tools/bench/size.h"

namespace geminid {
namespace {

using core::ChunkId;
using core::SessionId;

constexpr uint32_t kChunks = shm::kMaxChunks;
constexpr uint64_t kResident = kChunks / 2;
const uint32_t kMostSessions = bench::Size(256u, 4u);

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
  static World& Of(uint32_t sessions) {
    static std::map<uint32_t, std::unique_ptr<World>> worlds;
    std::unique_ptr<World>& world = worlds[sessions];
    if (world == nullptr) world.reset(new World(sessions));
    return *world;
  }

  // The first session's next absent chunk, if each one returned was placed: chunks leave in order.
  ChunkId NextAbsent() { return ChunkId{next_++ % kChunks}; }
  SessionId first() const { return sessions_.front(); }

  // Returns the answer, if there is one.
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
  // Sends two requests.
  bool PlaceAndPublish(SessionId session, ChunkId chunk) {
    const shm::Response placed =
        Send(session, shm::RequestOp::kAllocateExtent, chunk, shm::kMayEvict, shm::kAnyOffset);
    const shm::Response published = Send(session, shm::RequestOp::kPublish, chunk, 0, 0);
    return placed.op == shm::ResponseOp::kDone && published.op == shm::ResponseOp::kDone;
  }
  // Sends two requests.
  bool WriteBack(SessionId session, ChunkId chunk) {
    const shm::Response ticket =
        Send(session, shm::RequestOp::kTransfer, chunk, 0, 0, shm::kSlotBytes);
    if (ticket.op != shm::ResponseOp::kTicket) return false;
    tables_.completed = ticket.ticket;
    Send(session, shm::RequestOp::kTransferDone, shm::kNoChunk, 0, ticket.ticket);
    return out_.empty();
  }

 private:
  explicit World(uint32_t sessions) {
    // Each tenant must leave as many records free as it has.
    const uint32_t records = (sessions + 1) * kChunks;
    blocks_ = std::vector<Block>(core::Manifest::BytesFor(records) / sizeof(Block));
    core::EngineOptions options;
    options.host_capacity_bytes = uint64_t{1} << 50;
    options.devices = {core::HostDevice(core::DeviceIndex{0}, uint64_t{1} << 50)};
    options.max_sessions = sessions + 1;
    core::Manifest manifest = *core::Manifest::Create(
        {blocks_.front().bytes, blocks_.size() * sizeof(Block)}, /*epoch=*/1);
    engine_ = std::make_unique<core::Engine>(options, &tables_, std::move(manifest));
    for (uint32_t i = 0; i < sessions; ++i) AddSession();
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

// One session works; all the others are as full as it is. Four requests: a chunk is placed and
// evicts another one, it is published, and it is copied to its home.
void BM_FourRequests(benchmark::State& state) {
  World& world = World::Of(static_cast<uint32_t>(state.range(0)));
  for (auto _ : state) {
    const ChunkId chunk = world.NextAbsent();
    if (!world.PlaceAndPublish(world.first(), chunk) || !world.WriteBack(world.first(), chunk)) {
      state.SkipWithError("a request was refused");
      break;
    }
  }
}

// A queue of transfers in every session, on a link that all share. One copy ends, the next one in
// turn begins, and a new transfer is queued in its place.
class Queues {
 public:
  static Queues& Of(uint32_t sessions) {
    static std::map<uint32_t, std::unique_ptr<Queues>> queues;
    std::unique_ptr<Queues>& made = queues[sessions];
    if (made == nullptr) made.reset(new Queues(sessions));
    return *made;
  }

  bool EndOneAndBeginAnother() {
    now_ = now_ + core::Duration::Nanoseconds(1000);
    if (!scheduler_.Complete(running_.session, running_.id, now_)) return false;
    Enqueue(running_.session);
    const std::vector<core::Ticket> granted = scheduler_.Grant(now_);
    if (granted.size() != 1) return false;
    running_ = granted.front();
    return true;
  }

 private:
  explicit Queues(uint32_t sessions) {
    for (uint32_t i = 1; i <= sessions; ++i) {
      scheduler_.AddSession(SessionId{i}, core::DeviceIndex{0}, 1 + i % 3);
      for (uint32_t k = 0; k < kQueued; ++k) Enqueue(SessionId{i});
    }
    running_ = scheduler_.Grant(now_).front();
  }
  static core::TransferLimits OneAtATime() {
    core::TransferLimits limits;
    limits.link_bytes_in_flight = 1;
    return limits;
  }
  void Enqueue(SessionId session) {
    core::TransferRequest request;
    request.direction = core::Direction::kHostToDevice;
    request.bytes = shm::kSlotBytes;
    request.cause = core::TransferCause::kDemand;
    request.deadline_moment = static_cast<uint16_t>(next_ % 1000);
    request.source = request.destination = ChunkId{static_cast<uint32_t>(next_++ % kChunks)};
    scheduler_.Enqueue(session, request, now_);
  }

  static constexpr uint32_t kQueued = 1024;
  core::TransferScheduler scheduler_{OneAtATime()};
  core::Ticket running_;
  core::Time now_ = core::Time::FromNanoseconds(1);
  uint64_t next_ = 0;
};

void BM_Schedule(benchmark::State& state) {
  Queues& queues = Queues::Of(static_cast<uint32_t>(state.range(0)));
  for (auto _ : state) {
    if (!queues.EndOneAndBeginAnother()) {
      state.SkipWithError("the link stands still");
      break;
    }
  }
}

void Sessions(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgName("sessions");
  for (uint32_t sessions = 1; sessions <= kMostSessions; sessions *= 4) benchmark->Arg(sessions);
}
BENCHMARK(BM_FourRequests)->Apply(Sessions);
BENCHMARK(BM_Schedule)->Apply(Sessions);

}  // namespace
}  // namespace geminid

BENCHMARK_MAIN();
