#include "gmock/gmock.h"
#include "tests/daemon/core/engine_fixture.h"

namespace geminid::core {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class EngineSessions : public EngineTest {
 protected:
  static SessionSpec Keeping() {
    SessionSpec spec = Spec();
    spec.death_policy = shm::DeathPolicy::kKeep;
    return spec;
  }
  void ExpectEmpty() {
    EXPECT_TRUE(engine_->Sessions().empty());
    EXPECT_TRUE(engine_->Pools().empty());
    EXPECT_TRUE(engine_->ledger().Lines().empty());
    for (const Account& account : {kHostAccount, DeviceAccount(DeviceIndex{0})}) {
      const AccountTotals totals = engine_->ledger().Totals(account);
      EXPECT_EQ(totals.free_bytes, totals.capacity_bytes);
      EXPECT_EQ(engine_->quota().ChargedBytes("uid:1000", account), 0u);
    }
    EXPECT_EQ(engine_->manifest().used_records(), 0u);
  }
};

TEST_F(EngineSessions, Open_IdsNeverRepeat) {
  const SessionId first = Open();
  ASSERT_TRUE(engine_->CloseSession(first, CloseReason::kDetached, now_).ok());
  EXPECT_GT(Open(), first);
}

TEST_F(EngineSessions, BadSpec_IsRefused) {
  const auto refused = [this](auto change) {
    SessionSpec spec = Spec();
    change(&spec);
    return engine_->OpenSession(spec, now_).status().code() == absl::StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](SessionSpec* spec) { spec->rank = 8; }));
  EXPECT_TRUE(refused([](SessionSpec* spec) { spec->rank = -1; }));
  EXPECT_TRUE(refused([](SessionSpec* spec) { spec->world_size = 0; }));
  EXPECT_TRUE(refused([](SessionSpec* spec) { spec->local_rank = -1; }));
  EXPECT_TRUE(refused([](SessionSpec* spec) { spec->tenant.clear(); }));
  EXPECT_TRUE(refused([](SessionSpec* spec) { spec->job.clear(); }));
}

TEST_F(EngineSessions, TooMany_AreRefused) {
  options_.max_sessions = 2;
  Start();
  Open();
  Open();
  const absl::Status status = engine_->OpenSession(Spec(), now_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("all 2 sessions"));
}

TEST_F(EngineSessions, Close_GivesEverythingBack) {
  const SessionId session = OpenWithArena(16);
  const ChunkId weight = Add(session, ChunkKind::kWeight, 5000);
  const ChunkId gathered = Add(session, ChunkKind::kGatheredWeight, 5000);
  MakeResident(session, gathered);
  Ask(session, MakeTransfer(weight, gathered, 10, 0));
  const auto releases = engine_->CloseSession(session, CloseReason::kDied, now_);
  ASSERT_TRUE(releases.ok());
  EXPECT_THAT(releases->pools, SizeIs(1));
  EXPECT_THAT(releases->arenas, ElementsAre(session));
  EXPECT_THAT(releases->sessions, ElementsAre(session));
  ExpectEmpty();
  EXPECT_EQ(engine_->CloseSession(session, CloseReason::kDied, now_).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(EngineSessions, UnknownSession_IsRefusedEverywhere) {
  const SessionId nobody{99};
  EXPECT_FALSE(engine_->CreateArena(nobody, 1).ok());
  EXPECT_FALSE(engine_->Allocate(nobody, {{"c", ChunkKind::kWeight, 1, true}}).ok());
  EXPECT_FALSE(engine_->Free(nobody, {}).ok());
  EXPECT_FALSE(engine_->SetPlan(nobody, {}).ok());
  EXPECT_FALSE(engine_->Explain(nobody, ChunkId{0}).ok());
  EXPECT_THAT(Send(nobody, Make(shm::RequestOp::kDrop, ChunkId{0})), IsEmpty());
}

TEST_F(EngineSessions, DeathOfAKeeper_KeepsWholeCopiesOnly) {
  const SessionId session = OpenWithArena(64, Keeping());
  const ChunkId weight = Add(session, ChunkKind::kWeight, 4096);
  const ChunkId dirty = Add(session, ChunkKind::kGeneric, 4096);
  const ChunkId filling = Add(session, ChunkKind::kGeneric, 4096);
  const ChunkId gathered = Add(session, ChunkKind::kGatheredWeight, 4096);
  MakeResident(session, dirty);
  ASSERT_EQ(Move(session, dirty, ChunkState::kHold, true).op, shm::ResponseOp::kDone);
  ASSERT_EQ(Move(session, dirty, ChunkState::kCompute).op, shm::ResponseOp::kDone);
  MakeResident(session, gathered);
  ASSERT_EQ(Ask(session, MakeTransfer(filling, filling, 100, shm::kAllocateDestination)).op,
            shm::ResponseOp::kTicket);
  shm::Request workspace = Make(shm::RequestOp::kReserveWorkspace, shm::kNoChunk);
  workspace.bytes = 8 * kSlot;
  ASSERT_EQ(Ask(session, workspace).op, shm::ResponseOp::kDone);
  tables_.Lease(session, dirty);

  const auto releases = engine_->CloseSession(session, CloseReason::kDied, now_);
  ASSERT_TRUE(releases.ok());
  EXPECT_THAT(releases->sessions, IsEmpty());
  EXPECT_EQ(engine_->Check(), absl::OkStatus());
  EXPECT_EQ(SnapshotOf(session, weight).status.valid, ValidLocation::kHome);
  EXPECT_EQ(SnapshotOf(session, dirty).status.valid, ValidLocation::kDevice);
  EXPECT_EQ(SnapshotOf(session, dirty).status.state, ChunkState::kHold);
  EXPECT_FALSE(SnapshotOf(session, dirty).leased);
  EXPECT_EQ(SnapshotOf(session, filling).status.residency, shm::Residency::kAbsent);
  EXPECT_EQ(SnapshotOf(session, gathered).status.residency, shm::Residency::kAbsent);
  EXPECT_GT(engine_->quota().ChargedBytes("uid:1000", kHostAccount), 0u);
  EXPECT_EQ(engine_->Sessions()[0].state, SessionState::kKept);
  EXPECT_EQ(engine_->Sessions()[0].workspace_bytes, 0u);
  EXPECT_FALSE(engine_->CreateArena(session, 1).ok());
  EXPECT_THAT(Send(session, Make(shm::RequestOp::kDrop, dirty)), IsEmpty());
}

TEST_F(EngineSessions, Kept_ExpiresInTick) {
  options_.keep_time = Duration::Seconds(10);
  Start();
  const SessionId session = OpenWithArena(4, Keeping());
  Add(session, ChunkKind::kWeight, 100);
  ASSERT_TRUE(engine_->CloseSession(session, CloseReason::kDied, now_).ok());
  const Time due = now_ + Duration::Seconds(10);
  std::vector<Outgoing> out;
  engine_->Tick(now_, &out);
  EXPECT_EQ(engine_->NextTick(), due);
  EXPECT_THAT(engine_->Tick(due + Duration::Nanoseconds(-1), &out).sessions, IsEmpty());
  const Releases releases = engine_->Tick(due, &out);
  EXPECT_THAT(releases.sessions, ElementsAre(session));
  EXPECT_THAT(releases.arenas, ElementsAre(session));
  EXPECT_THAT(releases.pools, SizeIs(1));
  EXPECT_EQ(engine_->NextTick(), std::nullopt);
  ExpectEmpty();
}

TEST_F(EngineSessions, Detach_FreesEvenForAKeeper) {
  const SessionId session = OpenWithArena(4, Keeping());
  Add(session, ChunkKind::kWeight, 100);
  EXPECT_THAT(engine_->CloseSession(session, CloseReason::kDetached, now_)->sessions, SizeIs(1));
  ExpectEmpty();
}

TEST_F(EngineSessions, KeptSession_CanBeEndedByTheOperator) {
  const SessionId session = OpenWithArena(4, Keeping());
  Add(session, ChunkKind::kWeight, 100);
  ASSERT_TRUE(engine_->CloseSession(session, CloseReason::kProtocolError, now_).ok());
  EXPECT_FALSE(engine_->CloseSession(session, CloseReason::kDied, now_).ok());
  EXPECT_THAT(engine_->CloseSession(session, CloseReason::kDetached, now_)->sessions, SizeIs(1));
  ExpectEmpty();
}

TEST_F(EngineSessions, KeeperWithoutChunks_IsNotKept) {
  const SessionId session = OpenWithArena(4, Keeping());
  EXPECT_THAT(engine_->CloseSession(session, CloseReason::kDied, now_)->sessions, SizeIs(1));
  ExpectEmpty();
}

TEST_F(EngineSessions, Reopen_PublishesEveryChunkAndWorksOn) {
  const SessionId session = OpenWithArena(16, Keeping());
  const ChunkId chunk = Add(session, ChunkKind::kGeneric, 4096);
  MakeResident(session, chunk);
  ASSERT_TRUE(engine_->CloseSession(session, CloseReason::kDied, now_).ok());
  EXPECT_EQ(engine_->FindKept("uid:1000", "llm", 0), session);
  EXPECT_EQ(engine_->FindKept("uid:1000", "llm", 1), std::nullopt);
  EXPECT_EQ(engine_->FindKept("uid:1001", "llm", 0), std::nullopt);

  tables_.sessions.erase(session);
  SessionSpec thief = Keeping();
  thief.tenant = "uid:666";
  EXPECT_EQ(engine_->ReopenSession(session, thief, now_).code(),
            absl::StatusCode::kPermissionDenied);
  ASSERT_TRUE(engine_->ReopenSession(session, Keeping(), now_).ok());
  EXPECT_FALSE(engine_->ReopenSession(session, Keeping(), now_).ok());
  EXPECT_EQ(engine_->FindKept("uid:1000", "llm", 0), std::nullopt);
  EXPECT_EQ(ResidencyOf(session, chunk), shm::Residency::kResident);
  EXPECT_EQ(Do(session, shm::RequestOp::kDrop, chunk).op, shm::ResponseOp::kDone);
  const shm::Response ticket =
      Ask(session, MakeTransfer(chunk, chunk, 4096, shm::kAllocateDestination));
  EXPECT_EQ(ticket.op, shm::ResponseOp::kTicket);
  EXPECT_THAT(Finish(session, ticket), IsEmpty());
}

TEST_F(EngineSessions, Plan_IsValidated) {
  const SessionId session = Open();
  const ChunkId chunk = Add(session, ChunkKind::kGeneric, 10);
  EXPECT_TRUE(engine_->SetPlan(session, {.moments = 4, .chunks = {{chunk, {3, 0}}}}).ok());
  EXPECT_EQ(engine_->SetPlan(session, {.moments = 4, .chunks = {{chunk, {4}}}}).code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_EQ(engine_->SetPlan(session, {.moments = 4, .chunks = {{ChunkId{7}, {1}}}}).code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace geminid::core
