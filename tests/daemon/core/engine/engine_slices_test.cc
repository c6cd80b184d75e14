// Allocations and plans that are entered in slices: what others see between slices, and what is
// left if the session ends there.
#include "gmock/gmock.h"
#include "tests/daemon/core/engine/engine_fixture.h"

namespace geminid::core {
namespace {

using absl::StatusCode;
using shm::Residency;
using shm::ResponseOp;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class EngineSlices : public EngineTest {
 protected:
  Promise Begin(SessionId session, int chunks, int without_home = 0) {
    std::vector<ChunkSpec> specs;
    for (int i = 0; i < chunks; ++i) {
      specs.push_back({std::to_string(i), ChunkKind::kGeneric, 100, i >= without_home});
    }
    const absl::StatusOr<Promise> promise = engine_->BeginAllocation(session, specs, 7);
    EXPECT_TRUE(promise.ok()) << promise.status();
    return *promise;
  }
  // Returns whether this was the last slice.
  bool Continue(const Promise& promise, size_t most) {
    const auto allocation = engine_->ContinueAllocation(promise.charge, most);
    EXPECT_TRUE(allocation.ok()) << allocation.status();
    EXPECT_EQ(engine_->Check(), absl::OkStatus());
    if (allocation.ok() && allocation->has_value()) allocation_ = **allocation;
    return allocation.ok() && allocation->has_value();
  }
  // Expects that nothing is charged any more.
  void ExpectNothingLeft() {
    EXPECT_EQ(engine_->ledger().Totals(kHostAccount).free_bytes, options_.host_capacity_bytes);
    EXPECT_EQ(engine_->chunk_limit().used(), 0u);
    EXPECT_EQ(engine_->quota().ChargedBytes("uid:1000", kHostAccount), 0u);
  }

  Allocation allocation_;
};

TEST_F(EngineSlices, AllocationInSlices_IsTheSameAsInOne) {
  const SessionId session = Open();
  const Promise promise = Begin(session, 10);
  EXPECT_FALSE(Continue(promise, 4));
  EXPECT_EQ(engine_->ChunkCount(session), 4u);
  EXPECT_FALSE(Continue(promise, 4));
  EXPECT_TRUE(Continue(promise, 4));
  ASSERT_THAT(allocation_.chunks, SizeIs(10));
  EXPECT_EQ(allocation_.pool, promise.pool);
  EXPECT_EQ(allocation_.pool_bytes, 4096u);
  for (size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(allocation_.home_offsets[i], 128 * i);
    EXPECT_EQ(SnapshotOf(session, allocation_.chunks[i]).identity.home_offset, 128 * i);
  }
  EXPECT_EQ(engine_->ContinueAllocation(promise.charge, 1).status().code(), StatusCode::kAborted);
  const absl::StatusOr<Releases> releases = engine_->Free(session, allocation_.chunks);
  ASSERT_TRUE(releases.ok());
  EXPECT_THAT(releases->pools, SizeIs(1));
  GiveBack(*releases);
  ExpectNothingLeft();
}

// A client that guesses the numbers could free the pool while chunks are put into it.
TEST_F(EngineSlices, ChunksOfAnAllocationThatIsNotDone_CannotBeFreed) {
  const SessionId session = Open();
  const Promise promise = Begin(session, 4);
  EXPECT_FALSE(Continue(promise, 2));
  const absl::StatusOr<Releases> releases = engine_->Free(session, {ChunkId{0}, ChunkId{1}});
  EXPECT_EQ(releases.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(releases.status().message(), HasSubstr("is being allocated"));
  EXPECT_FALSE(engine_->CheckFree(session, {ChunkId{0}}).ok());
  EXPECT_TRUE(Continue(promise, 2));
  EXPECT_TRUE(engine_->CheckFree(session, {ChunkId{0}}).ok());
  EXPECT_TRUE(engine_->Free(session, {ChunkId{0}, ChunkId{1}}).ok());
}

TEST_F(EngineSlices, SessionThatEndsBetweenSlices_LeavesNothing) {
  for (const int without_home : {0, 3}) {
    const SessionId session = Open();
    const Promise promise = Begin(session, 6, without_home);
    EXPECT_FALSE(Continue(promise, 2));
    const absl::StatusOr<Releases> releases =
        engine_->CloseSession(session, CloseReason::kDetached, now_);
    ASSERT_TRUE(releases.ok());
    EXPECT_THAT(releases->pools, SizeIs(1));
    EXPECT_EQ(engine_->ContinueAllocation(promise.charge, 2).status().code(), StatusCode::kAborted);
    engine_->GiveBack(promise.charge);
    GiveBack(*releases);
    ExpectNothingLeft();
  }
}

TEST_F(EngineSlices, SessionThatIsKeptBetweenSlices_CanBeFreedByItsSuccessor) {
  SessionSpec spec = Spec();
  spec.run = "run";
  spec.death_policy = shm::DeathPolicy::kKeep;
  const SessionId session = Open(spec);
  const Promise promise = Begin(session, 4);
  EXPECT_FALSE(Continue(promise, 2));
  ASSERT_TRUE(engine_->CloseSession(session, CloseReason::kDied, now_).ok());
  EXPECT_EQ(engine_->ContinueAllocation(promise.charge, 2).status().code(), StatusCode::kAborted);
  engine_->GiveBack(promise.charge);
  EXPECT_EQ(engine_->Check(), absl::OkStatus());
  ASSERT_TRUE(engine_->ReopenSession(session, spec, now_).ok());
  const absl::StatusOr<std::vector<ChunkId>> made = engine_->MadeBy(session, 7, 7);
  ASSERT_THAT(*made, SizeIs(2));
  const absl::StatusOr<Releases> releases = engine_->Free(session, *made);
  ASSERT_TRUE(releases.ok()) << releases.status();
  GiveBack(*releases);
  ExpectNothingLeft();
}

// All of the arena's chunks have their positions of the older plan. A request still gets space.
TEST_F(EngineSlices, EvictionBetweenTwoSlicesOfAPlan_FindsWhatMayLeave) {
  const SessionId session = OpenWithArena(4);
  std::vector<ChunkId> chunks;
  NextUseTable early, late;
  early.moments = late.moments = 100;
  for (uint32_t i = 0; i < 4; ++i) {
    chunks.push_back(Add(session, ChunkKind::kGeneric, kSlot));
    MakeResident(session, chunks.back(), i * kSlot);
    early.chunks.push_back({chunks.back(), {i}});
    late.chunks.push_back({chunks.back(), {99 - i}});
  }
  for (const NextUseTable& table : {early, late, early}) {
    absl::StatusOr<PlanUses> plan = SortUses(table);
    ASSERT_TRUE(plan.ok());
    ASSERT_TRUE(engine_->BeginPlan(session, &*plan).ok());
    const ChunkId wanted = Add(session, ChunkKind::kGatheredWeight, kSlot);
    EXPECT_EQ(Place(session, wanted, shm::kAnyOffset, shm::kMayEvict).op, ResponseOp::kDone)
        << last_error_;
    EXPECT_EQ(Do(session, shm::RequestOp::kDrop, wanted).op, ResponseOp::kDone);
    for (const ChunkId chunk : chunks) {
      if (ResidencyOf(session, chunk) == Residency::kAbsent) MakeResident(session, chunk);
    }
    size_t next = 0;
    while (!engine_->PlaceByPlan(session, &next, 1)) {
    }
  }
  // The plan in force decides: the chunk that `early` uses last is evicted.
  const ChunkId wanted = Add(session, ChunkKind::kGatheredWeight, kSlot);
  EXPECT_EQ(Place(session, wanted, shm::kAnyOffset, shm::kMayEvict).op, ResponseOp::kDone);
  EXPECT_EQ(ResidencyOf(session, chunks[3]), Residency::kAbsent);
}

TEST_F(EngineSlices, PlanThatIsReplaced_IsHandedBack) {
  const SessionId session = Open();
  const ChunkId chunk = Add(session, ChunkKind::kGeneric, 100);
  absl::StatusOr<PlanUses> plan = SortUses({.moments = 9, .chunks = {{chunk, {5, 3}}}});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->uses[chunk], (std::vector<uint32_t>{3, 5}));
  ASSERT_TRUE(engine_->BeginPlan(session, &*plan).ok());
  EXPECT_THAT(plan->uses, IsEmpty());
  PlanUses next;
  ASSERT_TRUE(engine_->BeginPlan(session, &next).ok());
  EXPECT_EQ(next.moments, 9u);
  EXPECT_EQ(next.uses[chunk], (std::vector<uint32_t>{3, 5}));
}

}  // namespace
}  // namespace geminid::core
