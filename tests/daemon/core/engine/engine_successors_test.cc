// The chunks that a dead client leaves to its replacement, and the chunks that the replacement
// claims.
#include "gmock/gmock.h"
#include "tests/daemon/core/engine/engine_fixture.h"

namespace geminid::core {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

uint64_t Number(uint64_t successor, uint64_t count) {
  return (successor << shm::kAllocationBits) + count;
}

class EngineSuccessors : public EngineTest {
 protected:
  static SessionSpec OfRun() {
    SessionSpec spec = Spec();
    spec.death_policy = shm::DeathPolicy::kKeep;
    spec.run = "run-1";
    return spec;
  }
  static std::vector<ChunkSpec> State() {
    return {{"part 0", ChunkKind::kWeight, 5000, true},
            {"part 0", ChunkKind::kExpAvg, 8000, true},
            {"spare", ChunkKind::kSpare, 8000, true},
            {"spare", ChunkKind::kSpare, 8000, true}};
  }
  Allocation Make(SessionId session, const std::vector<ChunkSpec>& specs, uint64_t number) {
    const absl::StatusOr<Promise> promise = engine_->BeginAllocation(session, specs, number);
    EXPECT_TRUE(promise.ok()) << promise.status();
    const absl::StatusOr<Allocation> made = engine_->FinishAllocation(promise->charge);
    EXPECT_TRUE(made.ok()) << made.status();
    return *made;
  }
  void Succeed(SessionId session) {
    ASSERT_TRUE(engine_->CloseSession(session, CloseReason::kDied, now_).ok());
    tables_.sessions.erase(session);
    ASSERT_TRUE(engine_->ReopenSession(session, OfRun(), now_).ok());
  }
};

TEST_F(EngineSuccessors, Claim_GivesTheVeryChunksOfTheAllocation) {
  const SessionId session = OpenWithArena(16, OfRun());
  Make(session, {{"other", ChunkKind::kWeight, 5000, true}}, 1);
  const Allocation made = Make(session, State(), 2);
  Succeed(session);
  EXPECT_EQ(engine_->SuccessorNumber(session), 1u);
  const auto claimed = engine_->Claim(session, State(), Number(1, 1));
  ASSERT_TRUE(claimed.ok()) << claimed.status();
  EXPECT_EQ(claimed->chunks, made.chunks);
  EXPECT_EQ(claimed->home_offsets, made.home_offsets);
  EXPECT_EQ(claimed->pool, made.pool);
  EXPECT_EQ(claimed->pool_bytes, made.pool_bytes);
  // The same answer again for a client that got no answer, but not for another client.
  EXPECT_EQ(engine_->Claim(session, State(), Number(1, 1))->chunks, made.chunks);
  EXPECT_EQ(engine_->Claim(session, State(), Number(1, 2)).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(engine_->SuccessorNumber(session), 2u);
}

TEST_F(EngineSuccessors, Claim_TakesNothingThatIsNotExactlyThat) {
  const SessionId session = OpenWithArena(16, OfRun());
  Make(session, State(), 1);
  Succeed(session);
  const auto refused = [&](auto change) {
    std::vector<ChunkSpec> specs = State();
    change(&specs);
    return engine_->Claim(session, specs, Number(1, 1)).status().code() ==
           absl::StatusCode::kNotFound;
  };
  EXPECT_TRUE(refused([](auto* specs) { specs->pop_back(); }));
  EXPECT_TRUE(refused([](auto* specs) { specs->push_back(specs->back()); }));
  EXPECT_TRUE(refused([](auto* specs) { (*specs)[1].bytes += 1; }));
  EXPECT_TRUE(refused([](auto* specs) { (*specs)[1].name = "part 1"; }));
  EXPECT_TRUE(refused([](auto* specs) { (*specs)[0].kind = ChunkKind::kGradient; }));
  EXPECT_TRUE(refused([](auto* specs) { (*specs)[0].has_home = false; }));
  EXPECT_TRUE(refused([](auto* specs) { std::swap((*specs)[0], (*specs)[1]); }));
  EXPECT_FALSE(refused([](auto*) {}));
}

TEST_F(EngineSuccessors, ClaimOfAnotherForm_NamesTheFirstChunkThatDiffers) {
  const SessionId session = OpenWithArena(16, OfRun());
  Make(session, {{"other", ChunkKind::kWeight, 5000, true}}, 1);
  Make(session, State(), 2);
  Succeed(session);
  const auto answer = [&](const std::vector<ChunkSpec>& specs) {
    return std::string(engine_->Claim(session, specs, Number(1, 1)).status().message());
  };
  std::vector<ChunkSpec> specs = State();
  specs[1] = {"part 1", ChunkKind::kWeight, 3 << 10, true};
  const std::string there = absl::StrCat("has ", State().size(), " chunks");
  EXPECT_THAT(answer(specs), AllOf(HasSubstr(there + ", and its chunk 1 is \"part 0\" (exp_avg, "),
                                   HasSubstr("), not \"part 1\" (weight, 3.0 KiB)")));
  specs = State();
  specs.push_back({"more", ChunkKind::kWeight, 5000, true});
  EXPECT_THAT(answer(specs), EndsWith(there));
}

TEST_F(EngineSuccessors, Claim_OfWhatWasFreedInPart_FindsNothing) {
  const SessionId session = OpenWithArena(16, OfRun());
  const Allocation made = Make(session, State(), 1);
  ASSERT_TRUE(engine_->Free(session, {made.chunks[1]}).ok());
  Succeed(session);
  EXPECT_EQ(engine_->Claim(session, State(), Number(1, 1)).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(EngineSuccessors, Claim_OfChunksThisClientMade_FindsNothing) {
  const SessionId session = OpenWithArena(16, OfRun());
  Make(session, State(), 1);
  EXPECT_EQ(engine_->Claim(session, State(), 2).status().code(), absl::StatusCode::kNotFound);
}

// The daemon died while it renumbered the chunks. The next daemon gets the same claim.
TEST_F(EngineSuccessors, Claim_ThatWasDoneInPart_IsFinished) {
  const SessionId session = OpenWithArena(16, OfRun());
  const Allocation made = Make(session, State(), 1);
  const Allocation half = Make(session, {State()[0]}, 2);
  Succeed(session);
  ASSERT_TRUE(engine_->Claim(session, {State()[0]}, Number(1, 1)).ok());
  // One of the two chunks of that kind has its number already. Together they are not an allocation.
  EXPECT_EQ(engine_->Claim(session, State(), Number(1, 1)).status().code(),
            absl::StatusCode::kNotFound);
  ASSERT_TRUE(engine_->Free(session, half.chunks).ok());
  EXPECT_EQ(engine_->Claim(session, State(), Number(1, 1))->chunks, made.chunks);
}

TEST_F(EngineSuccessors, WhatWasClaimed_CountsAsMadeSince) {
  const SessionId session = OpenWithArena(16, OfRun());
  Make(session, State(), 1);
  Make(session, {{"gathered", ChunkKind::kGatheredWeight, 100, false}}, 2);
  Succeed(session);
  const Allocation made = Make(session, {{"new", ChunkKind::kWeight, 100, true}}, Number(1, 1));
  const auto claimed = engine_->Claim(session, State(), Number(1, 2));
  ASSERT_TRUE(claimed.ok());
  const auto free_older = [&](uint64_t number) {
    return engine_->Free(session, *engine_->MadeBy(session, 0, number - 1));
  };
  const auto releases = free_older(Number(1, 0));
  ASSERT_TRUE(releases.ok()) << releases.status();
  EXPECT_THAT(releases->pools, IsEmpty());
  EXPECT_THAT(engine_->Chunks(session, 100), SizeIs(State().size() + 1));
  Succeed(session);
  EXPECT_EQ(engine_->SuccessorNumber(session), 2u);
  const auto all = free_older(Number(2, 0));
  ASSERT_TRUE(all.ok());
  EXPECT_THAT(all->pools, SizeIs(2));
  GiveBack(*all);
  EXPECT_EQ(engine_->ledger().Totals(kHostAccount).reserved_bytes, 0u);
}

TEST_F(EngineSuccessors, DeviceCopiesOfARun_AreKeptAsTheyWere) {
  const SessionId session = OpenWithArena(16, OfRun());
  const ChunkId leased = Add(session, ChunkKind::kWeight, 100);
  const ChunkId dirty = Add(session, ChunkKind::kWeight, 100);
  const ChunkId computing = Add(session, ChunkKind::kWeight, 100);
  const ChunkId gathered = Add(session, ChunkKind::kGatheredWeight, 100);
  for (const ChunkId chunk : {leased, dirty, computing, gathered}) MakeResident(session, chunk);
  ASSERT_EQ(Move(session, dirty, ChunkState::kHold, true).op, shm::ResponseOp::kDone);
  ASSERT_EQ(Move(session, computing, ChunkState::kCompute).op, shm::ResponseOp::kDone);
  tables_.Lease(session, leased);
  tables_.Lease(session, dirty);
  Succeed(session);
  for (const ChunkId chunk : {leased, dirty, computing}) {
    EXPECT_EQ(ResidencyOf(session, chunk), shm::Residency::kResident);
  }
  EXPECT_EQ(ResidencyOf(session, gathered), shm::Residency::kAbsent);
  EXPECT_EQ(SnapshotOf(session, dirty).status.valid, ValidLocation::kDevice);
}

TEST_F(EngineSuccessors, WhatIsKept_CountsForTheSuccessorsAdmission) {
  const SessionSpec spec = [] {
    SessionSpec alone = OfRun();
    alone.world_size = 1;
    return alone;
  }();
  const uint64_t device_bytes = options_.devices[0].capacity_bytes;
  const SessionId session = Open(spec);
  const RankRequest ask = {.device_bytes = device_bytes, .host_bytes = 5000, .may_wait = false};
  ASSERT_TRUE(engine_->Admit(session, "run-1", ask, 1, now_).ok());
  ASSERT_TRUE(engine_->CreateArena(session, device_bytes).ok());
  Add(session, ChunkKind::kWeight, 5000);
  ASSERT_TRUE(engine_->CloseSession(session, CloseReason::kDied, now_).ok());
  tables_.sessions.erase(session);
  ASSERT_TRUE(engine_->ReopenSession(session, spec, now_).ok());
  const auto standing = engine_->Admit(session, "run-1", ask, 1, now_);
  ASSERT_TRUE(standing.ok()) << standing.status();
  EXPECT_EQ(standing->state, JobState::kRunning);
  EXPECT_EQ(engine_->counters().sessions_resumed, 1u);
}

TEST_F(EngineSuccessors, Reopened_IsKeptInTheBooksUntilItsClientWasTold) {
  const SessionId session = OpenWithArena(16, OfRun());
  Add(session, ChunkKind::kWeight, 100);
  ASSERT_TRUE(engine_->CloseSession(session, CloseReason::kDied, now_).ok());
  struct alignas(4096) Page {
    std::byte bytes[4096];
  };
  std::vector<Page> memory(SessionBooks::Bytes() / sizeof(Page) + 1);
  SessionFacts facts;
  facts.id = session;
  facts.spec = OfRun();
  const auto books =
      SessionBooks::Create({memory.front().bytes, memory.size() * sizeof(Page)}, facts);
  ASSERT_TRUE(books.ok()) << books.status();
  engine_->KeepBooks(session, *books);
  ASSERT_TRUE(engine_->ReopenSession(session, OfRun(), now_).ok());
  EXPECT_TRUE(books->welcomed());  // otherwise the session would be given up
  EXPECT_TRUE(books->KeptUntil().has_value());
  EXPECT_EQ(books->NameOf(ChunkId{0}), "c1");
  EXPECT_EQ(books->arena_bytes(), 16 * kSlot);
  engine_->SetWelcomed(session);
  EXPECT_FALSE(books->KeptUntil().has_value());
}

// A job of one rank, which the operator holds in host memory.
class EngineSuccessorsOfHeldJob : public EngineSuccessors {
 protected:
  void SetUp() override {
    EngineSuccessors::SetUp();
    session_ = OpenWithArena(16, OfRun());
    state_ = Make(session_, State(), 1).chunks;
    ASSERT_EQ(Ask().state, JobState::kRunning);
    ASSERT_TRUE(Hold(true).ok());
    ASSERT_EQ(Ask().state, JobState::kYielding);
  }
  JobStatus Ask() {
    const RankRequest ask = {.device_bytes = 16 * kSlot, .preemptible = true};
    const auto standing = engine_->Admit(session_, OfRun().run, ask, 1, now_);
    EXPECT_TRUE(standing.ok()) << standing.status();
    return standing.value_or(JobStatus{});
  }
  absl::Status Hold(bool hold) {
    return engine_->HoldJob(engine_->jobs().JobOf(session_), hold, now_);
  }
  void Yield() {
    const absl::StatusOr<Releases> releases = engine_->ReleaseArena(session_, now_);
    ASSERT_TRUE(releases.ok()) << releases.status();
    GiveBack(*releases);
  }

  SessionId session_{};
  std::vector<ChunkId> state_;
};

TEST_F(EngineSuccessorsOfHeldJob, ReplacementRanks_WaitUntilTheOperatorLetsThemGo) {
  Yield();
  for (int deaths = 1; deaths <= 2; ++deaths) {
    Succeed(session_);
    const JobStatus standing = Ask();
    EXPECT_EQ(standing.state, JobState::kQueued);
    EXPECT_THAT(standing.reason, HasSubstr("the operator holds it"));
  }
  ASSERT_TRUE(Hold(false).ok());
  EXPECT_EQ(Ask().state, JobState::kRunning);
  Succeed(session_);
  EXPECT_EQ(Ask().state, JobState::kRunning);
}

// Only the ranks themselves can move to host memory what is in the arena.
TEST_F(EngineSuccessorsOfHeldJob, ReplacementRanksWithTheArena_RunUntilTheyHaveGivenItBack) {
  MakeResident(session_, state_[1]);
  Succeed(session_);
  tables_.yields.clear();
  (void)Ask();
  EXPECT_EQ(Ask().state, JobState::kYielding);
  EXPECT_TRUE(tables_.yields[session_]);
  ASSERT_EQ(Do(session_, shm::RequestOp::kDrop, state_[1]).op, shm::ResponseOp::kDone);
  Yield();
  EXPECT_EQ(Ask().state, JobState::kPreempted);
}

// The job that waits for it need not wait for the next client, which may never come.
TEST_F(EngineSuccessorsOfHeldJob, ArenaInWhichNothingIsLeft_IsGivenBackAtTheDeath) {
  const auto free_bytes = [this] {
    return engine_->ledger().Totals(DeviceAccount(DeviceIndex{0})).free_bytes;
  };
  const uint64_t before = free_bytes();
  const absl::StatusOr<Releases> releases =
      engine_->CloseSession(session_, CloseReason::kDied, now_);
  ASSERT_TRUE(releases.ok()) << releases.status();
  EXPECT_THAT(releases->arenas, ElementsAre(session_));
  GiveBack(*releases);
  EXPECT_EQ(free_bytes(), before + 16 * kSlot);
  tables_.sessions.erase(session_);
  ASSERT_TRUE(engine_->ReopenSession(session_, OfRun(), now_).ok());
  EXPECT_THAT(Ask().reason, HasSubstr("the operator holds it"));
  ASSERT_TRUE(Hold(false).ok());
  EXPECT_EQ(Ask().state, JobState::kRunning);
  EXPECT_TRUE(engine_->CreateArena(session_, 16 * kSlot).ok());
  EXPECT_TRUE(engine_->Claim(session_, State(), Number(1, 1)).ok());
}

TEST_F(EngineSuccessors, ArenaOfAJobThatWasNotAskedForIt_StaysForTheNextClient) {
  const SessionId session = OpenWithArena(16, OfRun());
  Make(session, State(), 1);
  const RankRequest ask = {.device_bytes = 16 * kSlot, .preemptible = true};
  ASSERT_TRUE(engine_->Admit(session, OfRun().run, ask, 1, now_).ok());
  const absl::StatusOr<Releases> releases =
      engine_->CloseSession(session, CloseReason::kDied, now_);
  ASSERT_TRUE(releases.ok()) << releases.status();
  EXPECT_THAT(releases->arenas, IsEmpty());
}

TEST_F(EngineSuccessorsOfHeldJob, JobLetGoWhileItHasNoRanks_Runs) {
  Yield();
  ASSERT_TRUE(engine_->CloseSession(session_, CloseReason::kDied, now_).ok());
  tables_.sessions.erase(session_);
  EXPECT_EQ(engine_->LetGoRetained(OfRun().tenant, "another"), 0u);
  EXPECT_EQ(engine_->LetGoRetained(OfRun().tenant, OfRun().job), 1u);
  EXPECT_EQ(engine_->LetGoRetained(OfRun().tenant, OfRun().job), 0u);
  ASSERT_TRUE(engine_->ReopenSession(session_, OfRun(), now_).ok());
  EXPECT_EQ(Ask().state, JobState::kRunning);
}

}  // namespace
}  // namespace geminid::core
