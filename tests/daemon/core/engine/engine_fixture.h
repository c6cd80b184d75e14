// An engine with tables in ordinary memory, and short functions for the actions of clients.
#ifndef GEMINID_TESTS_DAEMON_CORE_ENGINE_ENGINE_FIXTURE_H_
#define GEMINID_TESTS_DAEMON_CORE_ENGINE_ENGINE_FIXTURE_H_

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/engine/engine.h"
#include "gtest/gtest.h"
#include "proto/shm/lease.h"

namespace geminid::core {

// The tables of all sessions. Records every published word, so that a test sees each step of a
// chunk.
class FakeTables : public Tables {
 public:
  struct SessionTables {
    std::map<ChunkId, uint64_t> state;
    std::map<ChunkId, uint64_t> lease;
    std::array<uint64_t, shm::kCompletionWords> completion{};
  };

  void PublishState(SessionId session, ChunkId chunk, uint64_t word) override {
    sessions[session].state[chunk] = word;
    history.push_back(shm::StateWord::Decode(word).residency);
    if (on_publish) on_publish(session, chunk, shm::StateWord::Decode(word));
  }
  uint64_t ReadLease(SessionId session, ChunkId chunk) override {
    return sessions[session].lease[chunk];
  }
  uint64_t ReadCompletion(SessionId session, uint16_t index) override {
    return sessions[session].completion[index];
  }
  void PublishYield(SessionId session, bool asked) override { yields[session] = asked; }

  shm::StateWord State(SessionId session, ChunkId chunk) {
    return shm::StateWord::Decode(sessions[session].state[chunk]);
  }
  // Takes a lease as a client that follows the protocol does.
  void Lease(SessionId session, ChunkId chunk) {
    sessions[session].lease[chunk] =
        shm::LeaseWord{.generation = State(session, chunk).generation, .count = 1}.Encode();
  }
  void Release(SessionId session, ChunkId chunk) { sessions[session].lease[chunk] = 0; }

  std::map<SessionId, SessionTables> sessions;
  std::map<SessionId, bool> yields;
  std::vector<shm::Residency> history;
  std::function<void(SessionId, ChunkId, shm::StateWord)> on_publish;
};

struct alignas(64) ManifestBlock {
  std::byte bytes[64];
};

class EngineTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kSlot = shm::kSlotBytes;
  static constexpr uint32_t kRecords = 1024;

  void SetUp() override { Start(); }
  void TearDown() override { EXPECT_EQ(engine_->Check(), absl::OkStatus()); }

  void Start() {
    blocks_.assign(2 * kRecords + 2, ManifestBlock{});
    absl::StatusOr<Manifest> manifest =
        Manifest::Create({blocks_.front().bytes, blocks_.size() * sizeof(ManifestBlock)}, 1);
    ASSERT_TRUE(manifest.ok());
    engine_ = std::make_unique<Engine>(options_, &tables_, *std::move(manifest));
  }

  static EngineOptions DefaultOptions() {
    EngineOptions options;
    options.host_capacity_bytes = uint64_t{1} << 30;
    options.devices = {HostDevice(DeviceIndex{0}, uint64_t{1} << 30)};
    return options;
  }
  static SessionSpec Spec(int rank = 0) {
    SessionSpec spec;
    spec.tenant = "uid:1000";
    spec.job = "llm";
    spec.rank = rank;
    spec.world_size = 8;
    return spec;
  }
  SessionId Open(const SessionSpec& spec = Spec()) {
    const absl::StatusOr<SessionId> session = engine_->OpenSession(spec, now_);
    EXPECT_TRUE(session.ok()) << session.status();
    return session.value_or(kNoSession);
  }
  // A session with an arena of this many slots.
  SessionId OpenWithArena(uint64_t slots, const SessionSpec& spec = Spec()) {
    const SessionId session = Open(spec);
    EXPECT_TRUE(engine_->CreateArena(session, slots * kSlot).ok());
    return session;
  }
  ChunkId Add(SessionId session, ChunkKind kind, uint64_t bytes) {
    const bool has_home = kind != ChunkKind::kGatheredWeight;
    const absl::StatusOr<Allocation> allocation = engine_->Allocate(
        session, {{std::string("c") + std::to_string(++names_), kind, bytes, has_home}});
    EXPECT_TRUE(allocation.ok()) << allocation.status();
    return allocation.ok() ? allocation->chunks[0] : shm::kNoChunk;
  }

  // Gives memory back, as the shell does once it has destroyed the released objects.
  void GiveBack(const Releases& releases) {
    for (const ChargeId charge : releases.charges) engine_->GiveBack(charge);
  }

  shm::Request Make(shm::RequestOp op, ChunkId chunk, uint16_t flags = 0, uint64_t argument = 0) {
    shm::Request request{};
    request.request_id = ++request_ids_;
    request.op = op;
    request.flags = flags;
    request.cause = TransferCause::kDemand;
    request.deadline_moment = kNoDeadline;
    request.source = chunk;
    request.destination = chunk;
    request.argument = argument;
    return request;
  }
  shm::Request MakeTransfer(ChunkId source, ChunkId destination, uint64_t bytes, uint16_t flags,
                            uint64_t device_offset = shm::kAnyOffset) {
    shm::Request request = Make(shm::RequestOp::kTransfer, destination, flags, device_offset);
    request.source = source;
    request.bytes = bytes;
    return request;
  }

  std::vector<Outgoing> Send(SessionId session, const shm::Request& request) {
    std::vector<Outgoing> out;
    engine_->HandleRequest(session, request, now_, &out);
    EXPECT_EQ(engine_->Check(), absl::OkStatus());
    return out;
  }
  // The one response that is due; kNone if there is none.
  shm::Response Ask(SessionId session, const shm::Request& request) {
    const std::vector<Outgoing> out = Send(session, request);
    EXPECT_LE(out.size(), 1u);
    if (out.empty()) return {};
    EXPECT_EQ(out[0].session, session);
    EXPECT_EQ(out[0].response.request_id, request.request_id);
    last_error_ = out[0].error;
    return out[0].response;
  }
  shm::Response Do(SessionId session, shm::RequestOp op, ChunkId chunk, uint16_t flags = 0,
                   uint64_t argument = 0) {
    return Ask(session, Make(op, chunk, flags, argument));
  }
  shm::Response Place(SessionId session, ChunkId chunk, uint64_t offset = shm::kAnyOffset,
                      uint16_t flags = 0) {
    return Do(session, shm::RequestOp::kAllocateExtent, chunk, flags, offset);
  }
  void MakeResident(SessionId session, ChunkId chunk, uint64_t offset = shm::kAnyOffset) {
    ASSERT_EQ(Place(session, chunk, offset).op, shm::ResponseOp::kDone) << last_error_;
    ASSERT_EQ(Do(session, shm::RequestOp::kPublish, chunk).op, shm::ResponseOp::kDone);
  }
  shm::Response Move(SessionId session, ChunkId chunk, ChunkState to, bool dirty = false) {
    return Do(session, shm::RequestOp::kTransition, chunk, 0,
              static_cast<uint64_t>(to) | (dirty ? shm::kDirtyBit : 0));
  }
  // Completes a ticket as an honest client does.
  std::vector<Outgoing> Finish(SessionId session, const shm::Response& ticket) {
    tables_.sessions[session].completion[ticket.completion_index] = ticket.ticket;
    return Send(session, Make(shm::RequestOp::kTransferDone, shm::kNoChunk, 0, ticket.ticket));
  }

  static void ExpectError(const shm::Response& response, absl::StatusCode code,
                          shm::ErrorReason reason) {
    EXPECT_EQ(response.op, shm::ResponseOp::kError);
    EXPECT_EQ(static_cast<absl::StatusCode>(response.status), code);
    EXPECT_EQ(static_cast<shm::ErrorReason>(response.error_code), reason)
        << shm::Name(static_cast<shm::ErrorReason>(response.error_code));
  }
  shm::Residency ResidencyOf(SessionId session, ChunkId chunk) {
    return tables_.State(session, chunk).residency;
  }
  ChunkSnapshot SnapshotOf(SessionId session, ChunkId chunk) {
    for (const ChunkSnapshot& snapshot : engine_->Chunks(session, 100000)) {
      if (snapshot.identity.chunk == chunk) return snapshot;
    }
    ADD_FAILURE() << "no such chunk";
    return {};
  }

  EngineOptions options_ = DefaultOptions();
  FakeTables tables_;
  std::vector<ManifestBlock> blocks_;
  std::unique_ptr<Engine> engine_;
  Time now_ = Time::FromNanoseconds(1'000'000'000);
  uint64_t request_ids_ = 100;
  int names_ = 0;
  std::string last_error_;
};

}  // namespace geminid::core

#endif  // GEMINID_TESTS_DAEMON_CORE_ENGINE_ENGINE_FIXTURE_H_
