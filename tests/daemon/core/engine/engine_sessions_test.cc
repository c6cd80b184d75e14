#include "gmock/gmock.h"
#include "tests/daemon/core/engine/engine_fixture.h"

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

TEST_F(EngineSessions, TooMany_AreRefusedAndOthersStillGetSome) {
  options_.max_sessions = 4;
  Start();
  const SessionId first = Open(Keeping());
  Add(first, ChunkKind::kWeight, 100);
  // A kept session counts as well, but only against its tenant's limit.
  ASSERT_TRUE(engine_->CloseSession(first, CloseReason::kDied, now_).ok());
  Open();
  const absl::Status status = engine_->OpenSession(Spec(), now_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("tenant uid:1000 holds 2"));
  SessionSpec other = Spec();
  other.tenant = "uid:2000";
  EXPECT_TRUE(engine_->OpenSession(other, now_).ok());
  ASSERT_THAT(engine_->refusals().Read(), SizeIs(1));
  EXPECT_EQ(engine_->refusals().Read()[0].limit, "sessions");
  EXPECT_EQ(engine_->refusals().Read()[0].tenant, "uid:1000");
  const auto releases = engine_->CloseSession(first, CloseReason::kDetached, now_);
  ASSERT_TRUE(releases.ok());
  EXPECT_EQ(engine_->session_limit().UsedBy("uid:1000"), 1u);
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
  GiveBack(*releases);
  ExpectEmpty();
  EXPECT_EQ(engine_->CloseSession(session, CloseReason::kDied, now_).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(EngineSessions, ClosedSession_StaysChargedUntilItsMemoryIsGone) {
  const SessionId session = OpenWithArena(16);
  Add(session, ChunkKind::kWeight, 5000);
  const auto releases = engine_->CloseSession(session, CloseReason::kDetached, now_);
  ASSERT_TRUE(releases.ok());
  EXPECT_EQ(engine_->ledger().Totals(kHostAccount).reserved_bytes, 8192u);
  EXPECT_EQ(engine_->quota().ChargedBytes("uid:1000", kHostAccount), 8192u);
  EXPECT_EQ(engine_->quota().ChargedBytes("uid:1000", DeviceAccount(DeviceIndex{0})), 16 * kSlot);
  EXPECT_EQ(engine_->Check(), absl::OkStatus());
  GiveBack(*releases);
  GiveBack(*releases);  // a second close releases nothing
  ExpectEmpty();
}

TEST_F(EngineSessions, MemoryInTheMaking_OutlivesItsSessionInTheBooks) {
  const SessionId session = OpenWithArena(4, Keeping());
  Add(session, ChunkKind::kWeight, 100);
  const auto promise =
      engine_->BeginAllocation(session, {{"late", ChunkKind::kWeight, 8192, true}});
  ASSERT_TRUE(promise.ok());
  const auto releases = engine_->CloseSession(session, CloseReason::kDied, now_);
  ASSERT_TRUE(releases.ok());
  ASSERT_THAT(releases->sessions, IsEmpty());  // it is kept
  EXPECT_EQ(engine_->Check(), absl::OkStatus());
  // The next client does not get the allocation either, because it does not know it.
  ASSERT_TRUE(engine_->ReopenSession(session, Keeping(), now_).ok());
  EXPECT_EQ(engine_->FinishAllocation(promise->charge).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(engine_->ChunkCount(session), 1u);
  EXPECT_EQ(engine_->ledger().Totals(kHostAccount).reserved_bytes, 8192u + 4096 - 100);
  engine_->GiveBack(promise->charge);
  EXPECT_EQ(engine_->ledger().Totals(kHostAccount).reserved_bytes, 4096u - 100);
}

TEST_F(EngineSessions, Chunks_AreListedInPages) {
  const SessionId first = Open();
  const SessionId second = Open();
  for (int i = 0; i < 3; ++i) Add(first, ChunkKind::kWeight, 100);
  for (int i = 0; i < 3; ++i) Add(second, ChunkKind::kWeight, 100);
  ASSERT_TRUE(engine_->Free(first, {ChunkId{1}}).ok());
  std::vector<std::pair<SessionId, ChunkId>> seen;
  ChunkPlace from;
  for (;;) {
    const std::vector<ChunkSnapshot> page = engine_->Chunks(kNoSession, 2, from);
    for (const ChunkSnapshot& chunk : page) {
      seen.emplace_back(chunk.identity.session, chunk.identity.chunk);
    }
    if (page.size() < 2) break;
    from = {seen.back().first, ChunkId{shm::Index(seen.back().second) + 1}};
  }
  EXPECT_THAT(seen, ElementsAre(std::pair(first, ChunkId{0}), std::pair(first, ChunkId{2}),
                                std::pair(second, ChunkId{0}), std::pair(second, ChunkId{1}),
                                std::pair(second, ChunkId{2})));
  EXPECT_THAT(engine_->Chunks(second, 100), SizeIs(3));
  EXPECT_FALSE(engine_->FindChunk(first, ChunkId{1}).has_value());
  EXPECT_EQ(engine_->FindChunk(first, ChunkId{2})->identity.chunk, ChunkId{2});
}

TEST_F(EngineSessions, CheckInParts_SeesEveryChunkAndFindsAContradiction) {
  const SessionId first = Open();
  const SessionId second = Open();
  for (int i = 0; i < 5; ++i) Add(first, ChunkKind::kWeight, 100);
  const ChunkId last = Add(second, ChunkKind::kWeight, 100);
  ChunkPlace next;
  int parts = 0;
  do {
    ASSERT_TRUE(engine_->CheckSome(2, &next).ok());
    ++parts;
  } while (next.session != kNoSession);
  EXPECT_EQ(parts, 3);
  // The record of the last chunk changes.
  ASSERT_TRUE(engine_->Check().ok());
  auto* const bytes = reinterpret_cast<uint8_t*>(blocks_.data());
  const ChunkIdentity identity = SnapshotOf(second, last).identity;
  const size_t size = blocks_.size() * sizeof(ManifestBlock);
  absl::Status found;
  for (size_t at = size; at-- > 0 && found.ok();) {
    bytes[at] ^= 1;
    const ChunkIdentity now = SnapshotOf(second, last).identity;
    const bool changed = now.bytes != identity.bytes || now.home_offset != identity.home_offset;
    next = {};
    while (changed && found.ok()) {
      found = engine_->CheckSome(2, &next);
      if (next.session == kNoSession) break;
    }
    bytes[at] ^= 1;
  }
  EXPECT_THAT(std::string(found.message()), HasSubstr("differs from its record"));
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
  MakeResident(session, gathered);
  ASSERT_EQ(Ask(session, MakeTransfer(filling, filling, 100, shm::kAllocateDestination)).op,
            shm::ResponseOp::kTicket);
  shm::Request workspace = Make(shm::RequestOp::kReserveWorkspace, shm::kNoChunk);
  workspace.bytes = 8 * kSlot;
  ASSERT_EQ(Ask(session, workspace).op, shm::ResponseOp::kDone);

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

// The client may have been in the middle of a change that it had not announced.
TEST_F(EngineSessions, Kept_CopiesThatWereInUseAreNotTakenAsWhole) {
  const SessionId session = OpenWithArena(32, Keeping());
  const ChunkId leased = Add(session, ChunkKind::kWeight, 100);
  const ChunkId computing = Add(session, ChunkKind::kWeight, 100);
  const ChunkId dirty = Add(session, ChunkKind::kWeight, 100);
  const ChunkId idle = Add(session, ChunkKind::kWeight, 100);
  for (const ChunkId chunk : {leased, computing, dirty, idle}) MakeResident(session, chunk);
  ASSERT_EQ(Move(session, computing, ChunkState::kCompute).op, shm::ResponseOp::kDone);
  ASSERT_EQ(Move(session, dirty, ChunkState::kHold, true).op, shm::ResponseOp::kDone);
  tables_.Lease(session, leased);
  tables_.Lease(session, dirty);
  ASSERT_TRUE(engine_->CloseSession(session, CloseReason::kDied, now_).ok());
  EXPECT_EQ(SnapshotOf(session, idle).status.residency, shm::Residency::kResident);
  for (const ChunkId chunk : {leased, computing, dirty}) {
    EXPECT_EQ(SnapshotOf(session, chunk).status.residency, shm::Residency::kAbsent);
  }
  EXPECT_EQ(SnapshotOf(session, leased).status.valid, ValidLocation::kHome);
  EXPECT_EQ(SnapshotOf(session, computing).status.valid, ValidLocation::kHome);
  // The home copy is older than the client's last change.
  EXPECT_EQ(SnapshotOf(session, dirty).status.valid, ValidLocation::kNowhere);

  tables_.sessions.erase(session);
  ASSERT_TRUE(engine_->ReopenSession(session, Keeping(), now_).ok());
  MakeResident(session, dirty);  // filled again
  EXPECT_EQ(SnapshotOf(session, dirty).status.valid, ValidLocation::kDevice);
  Finish(session, Ask(session, MakeTransfer(dirty, dirty, 100, 0)));
  EXPECT_EQ(SnapshotOf(session, dirty).status.valid, ValidLocation::kHome);
}

TEST_F(EngineSessions, Kept_HomesThatWereBeingWrittenAreNotValid) {
  const SessionId session = OpenWithArena(32, Keeping());
  const ChunkId clean = Add(session, ChunkKind::kWeight, 100);
  const ChunkId target = Add(session, ChunkKind::kExpAvg, 100);
  const ChunkId gradient = Add(session, ChunkKind::kGatheredWeight, 100);
  MakeResident(session, clean);
  MakeResident(session, gradient);
  EXPECT_EQ(Ask(session, MakeTransfer(clean, clean, 100, 0)).op, shm::ResponseOp::kTicket);
  EXPECT_EQ(Ask(session, MakeTransfer(gradient, target, 100, 0)).op, shm::ResponseOp::kTicket);
  // `valid` never names a copy that is being written.
  EXPECT_EQ(SnapshotOf(session, clean).status.valid, ValidLocation::kDevice);
  EXPECT_EQ(SnapshotOf(session, target).status.valid, ValidLocation::kNowhere);
  ASSERT_TRUE(engine_->CloseSession(session, CloseReason::kDied, now_).ok());
  EXPECT_EQ(SnapshotOf(session, clean).status.valid, ValidLocation::kDevice);
  EXPECT_EQ(SnapshotOf(session, target).status.valid, ValidLocation::kNowhere);
  // The next client may know that the copy is valid.
  tables_.sessions.erase(session);
  ASSERT_TRUE(engine_->ReopenSession(session, Keeping(), now_).ok());
  EXPECT_EQ(Ask(session, MakeTransfer(target, target, 100, shm::kAllocateDestination)).op,
            shm::ResponseOp::kTicket);
  EXPECT_EQ(SnapshotOf(session, target).status.valid, ValidLocation::kHome);
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
  GiveBack(releases);
  ExpectEmpty();
}

TEST_F(EngineSessions, Detach_FreesEvenForAKeeper) {
  const SessionId session = OpenWithArena(4, Keeping());
  Add(session, ChunkKind::kWeight, 100);
  const auto releases = engine_->CloseSession(session, CloseReason::kDetached, now_);
  ASSERT_TRUE(releases.ok());
  EXPECT_THAT(releases->sessions, SizeIs(1));
  GiveBack(*releases);
  ExpectEmpty();
}

TEST_F(EngineSessions, KeptSession_CanBeEndedByTheOperator) {
  const SessionId session = OpenWithArena(4, Keeping());
  Add(session, ChunkKind::kWeight, 100);
  ASSERT_TRUE(engine_->CloseSession(session, CloseReason::kProtocolError, now_).ok());
  EXPECT_FALSE(engine_->CloseSession(session, CloseReason::kDied, now_).ok());
  const auto releases = engine_->CloseSession(session, CloseReason::kDetached, now_);
  ASSERT_TRUE(releases.ok());
  EXPECT_THAT(releases->sessions, SizeIs(1));
  GiveBack(*releases);
  ExpectEmpty();
}

TEST_F(EngineSessions, KeeperWithoutChunks_IsNotKept) {
  const SessionId session = OpenWithArena(4, Keeping());
  const auto releases = engine_->CloseSession(session, CloseReason::kDied, now_);
  ASSERT_TRUE(releases.ok());
  EXPECT_THAT(releases->sessions, SizeIs(1));
  GiveBack(*releases);
  ExpectEmpty();
}

TEST_F(EngineSessions, Reopen_PublishesEveryChunkAndWorksOn) {
  const SessionId session = OpenWithArena(16, Keeping());
  const ChunkId chunk = Add(session, ChunkKind::kGeneric, 4096);
  MakeResident(session, chunk);
  ASSERT_TRUE(engine_->CloseSession(session, CloseReason::kDied, now_).ok());
  EXPECT_EQ(engine_->FindKept(Keeping()), session);
  const auto but = [](auto change) {
    SessionSpec spec = Keeping();
    change(&spec);
    return spec;
  };
  for (const SessionSpec& other : {but([](SessionSpec* spec) { spec->rank = 1; }),
                                   but([](SessionSpec* spec) { spec->world_size = 2; }),
                                   but([](SessionSpec* spec) { spec->run = "another"; }),
                                   but([](SessionSpec* spec) { spec->job = "other"; }),
                                   but([](SessionSpec* spec) { spec->tenant = "uid:1001"; })}) {
    EXPECT_EQ(engine_->FindKept(other), std::nullopt);
  }

  tables_.sessions.erase(session);
  SessionSpec thief = Keeping();
  thief.tenant = "uid:666";
  EXPECT_EQ(engine_->ReopenSession(session, thief, now_).code(),
            absl::StatusCode::kPermissionDenied);
  ASSERT_TRUE(engine_->ReopenSession(session, Keeping(), now_).ok());
  EXPECT_FALSE(engine_->ReopenSession(session, Keeping(), now_).ok());
  EXPECT_EQ(engine_->FindKept(Keeping()), std::nullopt);
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
