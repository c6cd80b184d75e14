// Sessions that are closed in slices: what others get between slices, and what is left.
#include "gmock/gmock.h"
#include "tests/daemon/core/engine/engine_fixture.h"

namespace geminid::core {
namespace {

using absl::StatusCode;
using shm::Residency;
using shm::ResponseOp;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class EngineCloses : public EngineTest {
 protected:
  static SessionSpec KeptSpec() {
    SessionSpec spec = Spec();
    spec.run = "run";
    spec.death_policy = shm::DeathPolicy::kKeep;
    return spec;
  }
  // A session with an arena and this many chunks, each in a pool of its own.
  SessionId OpenWithChunks(int chunks, const SessionSpec& spec = Spec()) {
    const SessionId session = OpenWithArena(4, spec);
    for (int i = 0; i < chunks; ++i) Add(session, ChunkKind::kGeneric, 100);
    return session;
  }
  Releases Begin(SessionId session, CloseReason reason) {
    const absl::StatusOr<Releases> releases = engine_->BeginClose(session, reason, now_);
    EXPECT_TRUE(releases.ok()) << releases.status();
    EXPECT_THAT(releases->closing, ElementsAre(session));
    return *releases;
  }
  // Returns whether this was the last slice.
  bool Continue(SessionId session, size_t most, Releases* releases) {
    const bool done = engine_->ContinueClose(session, most, releases);
    EXPECT_EQ(engine_->Check(), absl::OkStatus());
    return done;
  }
};

TEST_F(EngineCloses, EndInSlices_ReleasesTheSameAsInOne) {
  const SessionId session = OpenWithChunks(10);
  Releases releases = Begin(session, CloseReason::kDetached);
  EXPECT_FALSE(Continue(session, 4, &releases));
  EXPECT_THAT(releases.pools, SizeIs(4));
  EXPECT_EQ(engine_->ChunkCount(session), 6u);
  EXPECT_FALSE(Continue(session, 4, &releases));
  EXPECT_THAT(releases.sessions, IsEmpty());
  EXPECT_TRUE(Continue(session, 4, &releases));
  EXPECT_THAT(releases.pools, SizeIs(10));
  EXPECT_THAT(releases.arenas, ElementsAre(session));
  EXPECT_THAT(releases.sessions, ElementsAre(session));
  EXPECT_TRUE(Continue(session, 4, &releases)) << "it has ended";
  GiveBack(releases);
  EXPECT_EQ(engine_->ledger().Totals(kHostAccount).free_bytes, options_.host_capacity_bytes);
  EXPECT_EQ(engine_->session_limit().used(), 0u);
  EXPECT_EQ(engine_->chunk_limit().used(), 0u);
}

TEST_F(EngineCloses, SessionThatIsEnding_IsNobodysAnyMore) {
  const SessionId session = OpenWithChunks(4, KeptSpec());
  Releases releases = Begin(session, CloseReason::kDetached);
  EXPECT_FALSE(Continue(session, 1, &releases));
  EXPECT_THAT(engine_->Sessions(), IsEmpty());
  EXPECT_EQ(engine_->FindKept(KeptSpec()), std::nullopt);
  EXPECT_EQ(engine_->ReopenSession(session, KeptSpec(), now_).code(), StatusCode::kNotFound);
  EXPECT_EQ(engine_->Free(session, {ChunkId{3}}).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(
      engine_->BeginAllocation(session, {{"c", ChunkKind::kGeneric, 100, true}}).status().code(),
      StatusCode::kNotFound);
  EXPECT_THAT(Send(session, Make(shm::RequestOp::kDrop, ChunkId{3})), IsEmpty());
  EXPECT_EQ(engine_->NextTick(), Time()) << "nothing but the credits of the session is due";
}

// A second caller, such as an operator who ends the job, continues where the first stopped.
TEST_F(EngineCloses, SessionThatIsEndedTwice_IsReleasedOnce) {
  const SessionId session = OpenWithChunks(4);
  Releases first = Begin(session, CloseReason::kDied);
  EXPECT_FALSE(Continue(session, 2, &first));
  Releases second = Begin(session, CloseReason::kDetached);
  EXPECT_TRUE(Continue(session, 4, &second));
  EXPECT_TRUE(Continue(session, 4, &first));
  EXPECT_THAT(first.pools, SizeIs(2));
  EXPECT_THAT(second.pools, SizeIs(2));
  EXPECT_THAT(first.sessions, IsEmpty());
  EXPECT_THAT(second.sessions, ElementsAre(session));
  GiveBack(first);
  GiveBack(second);
  EXPECT_EQ(engine_->ledger().Totals(kHostAccount).free_bytes, options_.host_capacity_bytes);
}

TEST_F(EngineCloses, TicketOfAnother_IsGrantedBetweenTwoSlices) {
  const SessionId ends = OpenWithChunks(100);
  const SessionId other = OpenWithArena(4);
  const ChunkId chunk = Add(other, ChunkKind::kGeneric, 4096);
  Releases releases = Begin(ends, CloseReason::kDied);
  EXPECT_FALSE(Continue(ends, 16, &releases));
  const shm::Response ticket =
      Ask(other, MakeTransfer(chunk, chunk, 4096, shm::kAllocateDestination));
  EXPECT_EQ(ticket.op, ResponseOp::kTicket) << last_error_;
  Finish(other, ticket);
  EXPECT_EQ(engine_->ChunkCount(ends), 84u);
}

TEST_F(EngineCloses, ReplacementThatComesBetweenTwoSlices_FindsAllRetained) {
  const SessionId session = OpenWithArena(8, KeptSpec());
  std::vector<ChunkId> chunks;
  for (int i = 0; i < 4; ++i) {
    chunks.push_back(Add(session, ChunkKind::kGeneric, 4096));
    Send(session, MakeTransfer(chunks.back(), chunks.back(), 4096, shm::kAllocateDestination));
  }
  Releases releases = Begin(session, CloseReason::kDied);
  EXPECT_FALSE(Continue(session, 1, &releases));
  EXPECT_EQ(engine_->FindKept(KeptSpec()), session);
  ASSERT_TRUE(engine_->ReopenSession(session, KeptSpec(), now_).ok());
  EXPECT_EQ(engine_->Check(), absl::OkStatus());
  for (const ChunkId chunk : chunks) {
    EXPECT_EQ(SnapshotOf(session, chunk).pins, 0u);
    EXPECT_EQ(ResidencyOf(session, chunk), Residency::kAbsent) << "half of a copy was retained";
  }
  EXPECT_TRUE(Continue(session, 4, &releases)) << "what is closed is not closed again";
  EXPECT_THAT(releases.pools, IsEmpty());
}

TEST_F(EngineCloses, SessionWhoseTimeIsOver_EndsInSlices) {
  const SessionId session = OpenWithChunks(4, KeptSpec());
  ASSERT_TRUE(engine_->CloseSession(session, CloseReason::kDied, now_).ok());
  std::vector<Outgoing> out;
  now_ = now_ + options_.keep_time;
  Releases releases = engine_->BeginTick(now_, &out);
  EXPECT_THAT(releases.closing, ElementsAre(session));
  EXPECT_EQ(engine_->ChunkCount(session), 4u);
  EXPECT_EQ(engine_->NextTick(), std::nullopt) << "somebody ends it already";
  EXPECT_FALSE(Continue(session, 3, &releases));
  EXPECT_TRUE(Continue(session, 3, &releases));
  EXPECT_THAT(releases.sessions, ElementsAre(session));
  EXPECT_EQ(engine_->counters().sessions_expired, 1u);
}

// An operator ends the job of a dead client before the engine has closed all of its chunks.
TEST_F(EngineCloses, SessionThatEndsWhileItIsRetained_LeavesNothing) {
  const SessionId session = OpenWithChunks(6, KeptSpec());
  Releases kept = Begin(session, CloseReason::kDied);
  EXPECT_FALSE(Continue(session, 2, &kept));
  Releases ended = Begin(session, CloseReason::kDetached);
  while (!Continue(session, 1, &ended)) {
  }
  EXPECT_TRUE(Continue(session, 1, &kept));
  EXPECT_THAT(ended.pools, SizeIs(6));
  EXPECT_EQ(engine_->manifest().used_records(), 0u);
}

TEST_F(EngineCloses, MemoryThatIsStillBeingFreed_IsSaidToBeReturning) {
  options_.host_capacity_bytes = 8 * 4096;
  Start();
  const SessionId ends = OpenWithChunks(8);
  const SessionId other = Open(Spec(1));
  Releases releases = Begin(ends, CloseReason::kDied);
  EXPECT_FALSE(Continue(ends, 2, &releases));
  const absl::Status refused =
      engine_->BeginAllocation(other, {{"c", ChunkKind::kGeneric, 4096, true}}).status();
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), ::testing::HasSubstr("32.0 KiB are being returned"))
      << refused;
}

}  // namespace
}  // namespace geminid::core
