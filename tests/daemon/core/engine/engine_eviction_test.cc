#include "gmock/gmock.h"
#include "tests/daemon/core/engine/engine_fixture.h"

namespace geminid::core {
namespace {

using absl::StatusCode;
using shm::ErrorReason;
using shm::RequestOp;
using shm::Residency;
using shm::ResponseOp;
using ::testing::HasSubstr;

// An arena of four slots, full of four chunks of one slot each.
class EngineEviction : public EngineTest {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    session_ = OpenWithArena(4);
    for (int i = 0; i < 4; ++i) {
      chunks_.push_back(Add(session_, ChunkKind::kGeneric, kSlot));
      MakeResident(session_, chunks_.back(), i * kSlot);
    }
    wanted_ = Add(session_, ChunkKind::kGatheredWeight, kSlot);
  }
  std::string Residents() {
    std::string names;
    for (size_t i = 0; i < chunks_.size(); ++i) {
      if (ResidencyOf(session_, chunks_[i]) == Residency::kResident)
        names += static_cast<char>('a' + i);
    }
    return names;
  }

  SessionId session_{};
  std::vector<ChunkId> chunks_;
  ChunkId wanted_{};
};

TEST_F(EngineEviction, WithoutLeave_NothingIsEvicted) {
  ExpectError(Place(session_, wanted_), StatusCode::kResourceExhausted, ErrorReason::kArenaFull);
  EXPECT_EQ(Residents(), "abcd");
}

TEST_F(EngineEviction, WithoutAPlan_LeastRecentlyUsedGoes) {
  ASSERT_EQ(Move(session_, chunks_[0], ChunkState::kHold).op, ResponseOp::kDone);
  EXPECT_EQ(Place(session_, wanted_, shm::kAnyOffset, shm::kMayEvict).device_offset, kSlot);
  EXPECT_EQ(Residents(), "acd");
  EXPECT_EQ(engine_->counters().evictions, 1u);
}

TEST_F(EngineEviction, WhatItsClientDrops_IsNoEviction) {
  ASSERT_EQ(Do(session_, RequestOp::kDrop, chunks_[3]).op, ResponseOp::kDone);
  EXPECT_EQ(engine_->counters().drops, 1u);
  EXPECT_EQ(engine_->counters().evictions, 0u);
  tables_.Lease(session_, chunks_[2]);
  ExpectError(Do(session_, RequestOp::kDrop, chunks_[2]), StatusCode::kFailedPrecondition,
              ErrorReason::kLeased);
  EXPECT_EQ(engine_->counters().drops, 1u);
  EXPECT_EQ(engine_->counters().evictions_refused_by_lease, 0u);
}

TEST_F(EngineEviction, WithAPlan_FarthestNextUseGoes) {
  for (const ChunkId chunk : chunks_) {
    ASSERT_EQ(Move(session_, chunk, ChunkState::kHold).op, ResponseOp::kDone);
  }
  // The present moment is 5 of 10. Uses follow in: a 1, b 9 (it wraps around), c 4, d 0 moments.
  ASSERT_TRUE(engine_
                  ->SetPlan(session_, {.moments = 10,
                                       .chunks = {{chunks_[0], {6}},
                                                  {chunks_[1], {4}},
                                                  {chunks_[2], {9, 2}},
                                                  {chunks_[3], {5}}}})
                  .ok());
  Do(session_, RequestOp::kBeginMoment, shm::kNoChunk, 0, 5);
  EXPECT_EQ(Place(session_, wanted_, shm::kAnyOffset, shm::kMayEvict).op, ResponseOp::kDone);
  EXPECT_EQ(Residents(), "acd");
  const ChunkId another = Add(session_, ChunkKind::kGatheredWeight, kSlot);
  EXPECT_EQ(Place(session_, another, shm::kAnyOffset, shm::kMayEvict).op, ResponseOp::kDone);
  EXPECT_EQ(Residents(), "ad");
}

TEST_F(EngineEviction, LeasedDirtyComputingOrPinned_Stays) {
  tables_.Lease(session_, chunks_[0]);
  ASSERT_EQ(Move(session_, chunks_[1], ChunkState::kHold, true).op, ResponseOp::kDone);
  ASSERT_EQ(Move(session_, chunks_[2], ChunkState::kCompute).op, ResponseOp::kDone);
  ASSERT_EQ(Ask(session_, MakeTransfer(chunks_[3], chunks_[3], 10, 0)).op, ResponseOp::kTicket);
  ExpectError(Place(session_, wanted_, shm::kAnyOffset, shm::kMayEvict),
              StatusCode::kResourceExhausted, ErrorReason::kArenaFull);
  EXPECT_EQ(Residents(), "abcd");
  EXPECT_THAT(last_error_, HasSubstr("write back"));
}

TEST_F(EngineEviction, AfterBackward_TheGradientStays) {
  for (const ChunkId chunk : chunks_) {
    ASSERT_EQ(Move(session_, chunk, ChunkState::kCompute).op, ResponseOp::kDone);
    ASSERT_EQ(Move(session_, chunk, ChunkState::kHoldAfterBackward).op, ResponseOp::kDone);
  }
  ExpectError(Place(session_, wanted_, shm::kAnyOffset, shm::kMayEvict),
              StatusCode::kResourceExhausted, ErrorReason::kArenaFull);
  ASSERT_EQ(Move(session_, chunks_[2], ChunkState::kReadyForReduce).op, ResponseOp::kDone);
  ExpectError(Place(session_, wanted_, shm::kAnyOffset, shm::kMayEvict),
              StatusCode::kResourceExhausted, ErrorReason::kArenaFull);
  ASSERT_EQ(Move(session_, chunks_[2], ChunkState::kHold).op, ResponseOp::kDone);
  EXPECT_EQ(Place(session_, wanted_, shm::kAnyOffset, shm::kMayEvict).device_offset, 2 * kSlot);
}

TEST_F(EngineEviction, OnlyCopyStays_GatheredWeightMayGo) {
  ASSERT_TRUE(engine_->Free(session_, {chunks_[0], chunks_[1]}).ok());
  const auto only = engine_->Allocate(session_, {{"only", ChunkKind::kGeneric, kSlot, false}});
  ASSERT_TRUE(only.ok());
  MakeResident(session_, only->chunks[0], 0);
  ASSERT_EQ(Move(session_, only->chunks[0], ChunkState::kHold).op, ResponseOp::kDone);
  MakeResident(session_, wanted_, kSlot);
  ASSERT_EQ(Move(session_, wanted_, ChunkState::kHold).op, ResponseOp::kDone);
  tables_.Lease(session_, chunks_[2]);
  tables_.Lease(session_, chunks_[3]);
  const ChunkId next = Add(session_, ChunkKind::kGatheredWeight, kSlot);
  EXPECT_EQ(Place(session_, next, shm::kAnyOffset, shm::kMayEvict).device_offset, kSlot);
  EXPECT_EQ(ResidencyOf(session_, wanted_), Residency::kAbsent);
  EXPECT_EQ(ResidencyOf(session_, only->chunks[0]), Residency::kResident);
}

TEST_F(EngineEviction, AtAnOffset_EvictsWhatIsThereOrNothing) {
  const ChunkId wide = Add(session_, ChunkKind::kGatheredWeight, 2 * kSlot);
  tables_.Lease(session_, chunks_[2]);
  ExpectError(Place(session_, wide, kSlot, shm::kMayEvict), StatusCode::kResourceExhausted,
              ErrorReason::kExtentBusy);
  EXPECT_EQ(Residents(), "abcd");
  EXPECT_EQ(Place(session_, wide, 0, shm::kMayEvict).op, ResponseOp::kDone);
  EXPECT_EQ(Residents(), "cd");
}

TEST_F(EngineEviction, Workspace_IsNotEvictedFor) {
  ASSERT_TRUE(engine_->Free(session_, {chunks_[3]}).ok());
  shm::Request reserve = Make(RequestOp::kReserveWorkspace, shm::kNoChunk);
  reserve.bytes = kSlot;
  ASSERT_EQ(Ask(session_, reserve).op, ResponseOp::kDone);
  ExpectError(Place(session_, wanted_, 3 * kSlot, shm::kMayEvict), StatusCode::kResourceExhausted,
              ErrorReason::kExtentBusy);
  EXPECT_EQ(Residents(), "abc");
}

TEST_F(EngineEviction, LeaseTakenAtTheLastMoment_AnotherGoes) {
  const ChunkId first = chunks_[0];
  tables_.on_publish = [this, first](SessionId of, ChunkId chunk, shm::StateWord word) {
    if (chunk == first && word.residency == Residency::kEvictPending) tables_.Lease(of, chunk);
  };
  EXPECT_EQ(Place(session_, wanted_, shm::kAnyOffset, shm::kMayEvict).device_offset, kSlot);
  EXPECT_EQ(Residents(), "acd");
  EXPECT_EQ(engine_->Sessions()[0].evictions_refused_by_lease, 1u);
  tables_.on_publish = nullptr;
}

// A client takes a lease on the last victim when it is looked at. The request is refused and
// changes nothing: the other victims stay too.
TEST_F(EngineEviction, LastVictimIsLeasedAtTheLastMoment_TheOthersStay) {
  const ChunkId wide = Add(session_, ChunkKind::kGatheredWeight, 4 * kSlot);
  tables_.on_publish = [this](SessionId session, ChunkId chunk, shm::StateWord word) {
    if (chunk == chunks_[3] && word.residency == Residency::kEvictPending) {
      tables_.Lease(session, chunk);
    }
  };
  ExpectError(Place(session_, wide, shm::kAnyOffset, shm::kMayEvict),
              StatusCode::kResourceExhausted, ErrorReason::kArenaFull);
  EXPECT_EQ(Residents(), "abcd");
  tables_.Release(session_, chunks_[3]);
  ExpectError(Place(session_, wide, 0, shm::kMayEvict), StatusCode::kResourceExhausted,
              ErrorReason::kExtentBusy);
  EXPECT_EQ(Residents(), "abcd");
}

TEST_F(EngineEviction, PlaceThatReachesIntoTheWorkspace_NobodyLeavesForIt) {
  ASSERT_EQ(Do(session_, RequestOp::kDrop, chunks_[3]).op, ResponseOp::kDone);
  shm::Request workspace = Make(RequestOp::kReserveWorkspace, shm::kNoChunk);
  workspace.bytes = kSlot;
  ASSERT_EQ(Ask(session_, workspace).op, ResponseOp::kDone);
  const ChunkId wide = Add(session_, ChunkKind::kGatheredWeight, 2 * kSlot);
  ExpectError(Place(session_, wide, 2 * kSlot, shm::kMayEvict), StatusCode::kResourceExhausted,
              ErrorReason::kExtentBusy);
  EXPECT_EQ(Residents(), "abc");
}

TEST_F(EngineEviction, LeasesWithoutEnd_AreGivenUpOn) {
  tables_.on_publish = [this](SessionId of, ChunkId chunk, shm::StateWord word) {
    if (word.residency == Residency::kEvictPending) {
      tables_.Lease(of, chunk);
    } else {
      tables_.Release(of, chunk);
    }
  };
  ExpectError(Place(session_, wanted_, shm::kAnyOffset, shm::kMayEvict),
              StatusCode::kResourceExhausted, ErrorReason::kArenaFull);
  EXPECT_EQ(Residents(), "abcd");
  tables_.on_publish = nullptr;
}

TEST_F(EngineEviction, TooLarge_EvictsNothing) {
  const ChunkId huge = Add(session_, ChunkKind::kGatheredWeight, 5 * kSlot);
  ExpectError(Place(session_, huge, shm::kAnyOffset, shm::kMayEvict),
              StatusCode::kResourceExhausted, ErrorReason::kArenaFull);
  EXPECT_EQ(Residents(), "abcd");
}

TEST_F(EngineEviction, OtherSessionsChunks_AreSafe) {
  const SessionId other = OpenWithArena(1, Spec(1));
  const ChunkId a = Add(other, ChunkKind::kGatheredWeight, 2 * kSlot);
  ExpectError(Place(other, a, shm::kAnyOffset, shm::kMayEvict), StatusCode::kResourceExhausted,
              ErrorReason::kArenaFull);
  EXPECT_EQ(Residents(), "abcd");
}

TEST_F(EngineEviction, TransferMayEvictToo) {
  EXPECT_EQ(Ask(session_, MakeTransfer(chunks_[3], wanted_, kSlot,
                                       shm::kAllocateDestination | shm::kMayEvict))
                .op,
            ResponseOp::kTicket);
  EXPECT_EQ(Residents(), "bcd");
}

}  // namespace
}  // namespace geminid::core
