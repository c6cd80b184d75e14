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

class EngineRequests : public EngineTest {};

TEST_F(EngineRequests, AllocateExtent_GivesTheLowestOrTheOffsetAskedFor) {
  const SessionId session = OpenWithArena(8);
  const ChunkId a = Add(session, ChunkKind::kGatheredWeight, 5000);
  const ChunkId b = Add(session, ChunkKind::kGatheredWeight, 4096);
  const ChunkId c = Add(session, ChunkKind::kGatheredWeight, 1);
  EXPECT_EQ(Place(session, a).device_offset, 0u);
  EXPECT_EQ(Place(session, b, 4 * kSlot).device_offset, 4 * kSlot);
  EXPECT_EQ(Place(session, c).device_offset, 2 * kSlot);
  EXPECT_EQ(ResidencyOf(session, a), Residency::kFilling);
  EXPECT_EQ(tables_.State(session, b).slot, 4u);
  const AccountTotals totals = engine_->ledger().Totals(DeviceAccount(DeviceIndex{0}));
  EXPECT_EQ(totals.in_use_bytes, 5000u + 4096 + 1);
  EXPECT_EQ(totals.in_use_bytes + totals.reserved_bytes, 8 * kSlot);
}

TEST_F(EngineRequests, AllocateExtent_ErrorsSayWhy) {
  const SessionId session = OpenWithArena(4);
  const ChunkId a = Add(session, ChunkKind::kGatheredWeight, 2 * kSlot);
  const ChunkId b = Add(session, ChunkKind::kGatheredWeight, 3 * kSlot);
  ExpectError(Place(session, ChunkId{77}), StatusCode::kNotFound, ErrorReason::kUnknownChunk);
  ExpectError(Place(session, a, 1), StatusCode::kInvalidArgument, ErrorReason::kMalformed);
  ExpectError(Place(session, a, 3 * kSlot), StatusCode::kOutOfRange, ErrorReason::kOutOfRange);
  ExpectError(Place(session, a, ~uint64_t{0} - kSlot + 1), StatusCode::kOutOfRange,
              ErrorReason::kOutOfRange);
  EXPECT_EQ(Place(session, a).op, ResponseOp::kDone);
  ExpectError(Place(session, a), StatusCode::kFailedPrecondition, ErrorReason::kAlreadyResident);
  ExpectError(Place(session, b), StatusCode::kResourceExhausted, ErrorReason::kArenaFull);
  ExpectError(Place(session, b, kSlot), StatusCode::kResourceExhausted, ErrorReason::kExtentBusy);
  EXPECT_EQ(ResidencyOf(session, b), Residency::kAbsent);
}

TEST_F(EngineRequests, NoArena_IsSaid) {
  const SessionId session = Open();
  const ChunkId a = Add(session, ChunkKind::kGatheredWeight, 1);
  ExpectError(Place(session, a), StatusCode::kFailedPrecondition, ErrorReason::kArenaFull);
  EXPECT_THAT(last_error_, HasSubstr("no device memory"));
  ExpectError(Do(session, RequestOp::kReserveWorkspace, a), StatusCode::kFailedPrecondition,
              ErrorReason::kArenaFull);
}

TEST_F(EngineRequests, SubjectMayBeNamedAsSource) {
  const SessionId session = OpenWithArena(4);
  Add(session, ChunkKind::kGatheredWeight, 1);
  const ChunkId b = Add(session, ChunkKind::kGatheredWeight, 1);
  shm::Request request = Make(RequestOp::kAllocateExtent, b, 0, shm::kAnyOffset);
  request.destination = shm::kNoChunk;
  EXPECT_EQ(Ask(session, request).op, ResponseOp::kDone);
  EXPECT_EQ(ResidencyOf(session, b), Residency::kFilling);
}

TEST_F(EngineRequests, PublishAndDrop_GoThroughTheProtocol) {
  const SessionId session = OpenWithArena(4);
  const ChunkId a = Add(session, ChunkKind::kGatheredWeight, 100);
  ExpectError(Do(session, RequestOp::kPublish, a), StatusCode::kFailedPrecondition,
              ErrorReason::kNotResident);
  ExpectError(Do(session, RequestOp::kDrop, a), StatusCode::kFailedPrecondition,
              ErrorReason::kNotResident);
  tables_.history.clear();
  MakeResident(session, a);
  ExpectError(Do(session, RequestOp::kPublish, a), StatusCode::kFailedPrecondition,
              ErrorReason::kAlreadyResident);
  const uint32_t generation = tables_.State(session, a).generation;
  EXPECT_EQ(Do(session, RequestOp::kDrop, a).op, ResponseOp::kDone);
  EXPECT_THAT(tables_.history, ::testing::ElementsAre(Residency::kFilling, Residency::kResident,
                                                      Residency::kEvictPending,
                                                      Residency::kEvicting, Residency::kAbsent));
  EXPECT_EQ(tables_.State(session, a).generation, generation + 1);
  EXPECT_EQ(SnapshotOf(session, a).loads, 1u);
  EXPECT_EQ(SnapshotOf(session, a).drops, 1u);
}

TEST_F(EngineRequests, Drop_LeasedIsRefusedAndStaysResident) {
  const SessionId session = OpenWithArena(4);
  const ChunkId a = Add(session, ChunkKind::kGatheredWeight, 100);
  MakeResident(session, a);
  tables_.Lease(session, a);
  tables_.history.clear();
  ExpectError(Do(session, RequestOp::kDrop, a), StatusCode::kFailedPrecondition,
              ErrorReason::kLeased);
  EXPECT_THAT(tables_.history,
              ::testing::ElementsAre(Residency::kEvictPending, Residency::kResident));
  tables_.Release(session, a);
  EXPECT_EQ(Do(session, RequestOp::kDrop, a).op, ResponseOp::kDone);
}

// The lease word is torn, or of another generation.
TEST_F(EngineRequests, Drop_ForgedLeaseCountsAsHeldStaleOneDoesNot) {
  const SessionId session = OpenWithArena(4);
  const ChunkId a = Add(session, ChunkKind::kGatheredWeight, 100);
  MakeResident(session, a);
  tables_.sessions[session].lease[a] = 0x1234567800000000;
  ExpectError(Do(session, RequestOp::kDrop, a), StatusCode::kFailedPrecondition,
              ErrorReason::kLeased);
  tables_.sessions[session].lease[a] =
      shm::LeaseWord{.generation = tables_.State(session, a).generation + 5, .count = 1}.Encode();
  EXPECT_EQ(Do(session, RequestOp::kDrop, a).op, ResponseOp::kDone);
}

// The client takes a lease just after the daemon published EVICT_PENDING. The daemon must see it.
TEST_F(EngineRequests, Drop_LeaseTakenDuringEvictPending_CancelsIt) {
  const SessionId session = OpenWithArena(4);
  const ChunkId a = Add(session, ChunkKind::kGatheredWeight, 100);
  MakeResident(session, a);
  tables_.on_publish = [this](SessionId of, ChunkId chunk, shm::StateWord word) {
    if (word.residency == Residency::kEvictPending) tables_.Lease(of, chunk);
  };
  ExpectError(Do(session, RequestOp::kDrop, a), StatusCode::kFailedPrecondition,
              ErrorReason::kLeased);
  EXPECT_EQ(ResidencyOf(session, a), Residency::kResident);
  tables_.on_publish = nullptr;
}

TEST_F(EngineRequests, Drop_FillingNeedsNoProtocol) {
  const SessionId session = OpenWithArena(4);
  const ChunkId a = Add(session, ChunkKind::kGatheredWeight, 100);
  Place(session, a);
  EXPECT_EQ(Do(session, RequestOp::kDrop, a).op, ResponseOp::kDone);
  EXPECT_EQ(SnapshotOf(session, a).drops, 0u);
  EXPECT_EQ(engine_->ledger().Totals(DeviceAccount(DeviceIndex{0})).in_use_bytes, 0u);
}

TEST_F(EngineRequests, Drop_ComputeOrDirtyIsRefused) {
  const SessionId session = OpenWithArena(4);
  const ChunkId a = Add(session, ChunkKind::kGeneric, 100);
  MakeResident(session, a);
  ASSERT_EQ(Move(session, a, ChunkState::kCompute).op, ResponseOp::kDone);
  ExpectError(Do(session, RequestOp::kDrop, a), StatusCode::kFailedPrecondition,
              ErrorReason::kLeased);
  ASSERT_EQ(Move(session, a, ChunkState::kHold, true).op, ResponseOp::kDone);
  ExpectError(Do(session, RequestOp::kDrop, a), StatusCode::kFailedPrecondition,
              ErrorReason::kNone);
  EXPECT_THAT(last_error_, HasSubstr("write it back"));
  // Without a payload there are no bytes to write back.
  ASSERT_EQ(Move(session, a, ChunkState::kFree).op, ResponseOp::kDone);
  EXPECT_EQ(Do(session, RequestOp::kDrop, a).op, ResponseOp::kDone);
}

// All 25 pairs, each from a chunk brought into `from` by legal steps.
TEST_F(EngineRequests, Transition_AllPairs) {
  const std::vector<std::vector<ChunkState>> ways = {
      {},
      {ChunkState::kHold},
      {ChunkState::kCompute},
      {ChunkState::kCompute, ChunkState::kHoldAfterBackward},
      {ChunkState::kCompute, ChunkState::kHoldAfterBackward, ChunkState::kReadyForReduce}};
  const SessionId session = OpenWithArena(4);
  int legal = 0;
  for (int from = 0; from < shm::kChunkStates; ++from) {
    for (int to = 0; to < shm::kChunkStates; ++to) {
      const ChunkId chunk = Add(session, ChunkKind::kWeight, 1);
      for (const ChunkState step : ways[from]) {
        ASSERT_EQ(Move(session, chunk, step).op, ResponseOp::kDone);
      }
      const shm::Response response = Move(session, chunk, static_cast<ChunkState>(to));
      const ChunkState now = SnapshotOf(session, chunk).status.state;
      if (shm::IsLegalTransition(static_cast<ChunkState>(from), static_cast<ChunkState>(to))) {
        ++legal;
        EXPECT_EQ(response.op, ResponseOp::kDone);
        EXPECT_EQ(now, static_cast<ChunkState>(to));
      } else {
        ExpectError(response, StatusCode::kFailedPrecondition, ErrorReason::kIllegalTransition);
        EXPECT_EQ(now, static_cast<ChunkState>(from));
      }
    }
  }
  EXPECT_EQ(legal, 9);
}

TEST_F(EngineRequests, Transition_MalformedArguments) {
  const SessionId session = OpenWithArena(4);
  const ChunkId a = Add(session, ChunkKind::kGeneric, 100);
  for (const uint64_t argument :
       {uint64_t{5}, uint64_t{0xff}, uint64_t{0x201}, uint64_t{0x100}, ~uint64_t{0}}) {
    ExpectError(Do(session, RequestOp::kTransition, a, 0, argument), StatusCode::kInvalidArgument,
                ErrorReason::kMalformed);
  }
  EXPECT_EQ(SnapshotOf(session, a).status.state, ChunkState::kFree);
}

TEST_F(EngineRequests, Dirty_NeedsADeviceCopyAndMayBeRepeated) {
  const SessionId session = OpenWithArena(4);
  const ChunkId a = Add(session, ChunkKind::kGeneric, 100);
  ExpectError(Move(session, a, ChunkState::kHold, true), StatusCode::kFailedPrecondition,
              ErrorReason::kNotResident);
  EXPECT_EQ(SnapshotOf(session, a).status.state, ChunkState::kFree);
  MakeResident(session, a);
  EXPECT_EQ(Move(session, a, ChunkState::kHold, true).op, ResponseOp::kDone);
  EXPECT_EQ(Move(session, a, ChunkState::kHold, true).op, ResponseOp::kDone);
  EXPECT_EQ(SnapshotOf(session, a).status.valid, ValidLocation::kDevice);
  ExpectError(Move(session, a, ChunkState::kHold), StatusCode::kFailedPrecondition,
              ErrorReason::kIllegalTransition);
}

TEST_F(EngineRequests, Workspace_GrowsShrinksAndCounts) {
  const SessionId session = OpenWithArena(8);
  const ChunkId a = Add(session, ChunkKind::kGatheredWeight, kSlot);
  MakeResident(session, a, 4 * kSlot);
  const auto reserve = [&](uint64_t bytes, uint16_t flags) {
    shm::Request request = Make(RequestOp::kReserveWorkspace, shm::kNoChunk, flags);
    request.bytes = bytes;
    return Ask(session, request);
  };
  EXPECT_EQ(reserve(3 * kSlot - 5, 0).device_offset, 5 * kSlot);
  ExpectError(reserve(4 * kSlot, 0), StatusCode::kResourceExhausted, ErrorReason::kArenaFull);
  ExpectError(reserve(9 * kSlot, shm::kMayEvict), StatusCode::kResourceExhausted,
              ErrorReason::kArenaFull);
  ExpectError(reserve(~uint64_t{0}, shm::kMayEvict), StatusCode::kResourceExhausted,
              ErrorReason::kArenaFull);
  EXPECT_EQ(engine_->Sessions()[0].workspace_bytes, 3 * kSlot);
  tables_.Lease(session, a);
  ExpectError(reserve(4 * kSlot, shm::kMayEvict), StatusCode::kResourceExhausted,
              ErrorReason::kArenaFull);
  tables_.Release(session, a);
  EXPECT_EQ(reserve(4 * kSlot, shm::kMayEvict).op, ResponseOp::kDone);
  EXPECT_EQ(ResidencyOf(session, a), Residency::kAbsent);
  EXPECT_EQ(reserve(0, 0).op, ResponseOp::kDone);
  EXPECT_EQ(Place(session, a, 7 * kSlot).op, ResponseOp::kDone);
}

TEST_F(EngineRequests, NoReply_AnswersOnlyErrors) {
  const SessionId session = OpenWithArena(4);
  const ChunkId a = Add(session, ChunkKind::kGatheredWeight, 100);
  EXPECT_EQ(Place(session, a, shm::kAnyOffset, shm::kNoReply).op, ResponseOp::kNone);
  EXPECT_EQ(Do(session, RequestOp::kPublish, a, shm::kNoReply).op, ResponseOp::kNone);
  EXPECT_EQ(ResidencyOf(session, a), Residency::kResident);
  EXPECT_EQ(Do(session, RequestOp::kPublish, a, shm::kNoReply).op, ResponseOp::kError);
}

TEST_F(EngineRequests, BeginMoment_IsRememberedAndNeverAnswered) {
  const SessionId session = Open();
  EXPECT_EQ(Do(session, RequestOp::kBeginMoment, shm::kNoChunk, 0, 42).op, ResponseOp::kNone);
  EXPECT_EQ(engine_->Sessions()[0].moment, 42u);
  EXPECT_EQ(Do(session, RequestOp::kBeginMoment, shm::kNoChunk, 0, ~uint64_t{0}).op,
            ResponseOp::kNone);
}

TEST_F(EngineRequests, UnknownOperationsAndFlags_AreMalformed) {
  const SessionId session = OpenWithArena(4);
  const ChunkId a = Add(session, ChunkKind::kGatheredWeight, 100);
  for (const int op : {0, 9, 255, 65535}) {
    ExpectError(Do(session, static_cast<RequestOp>(op), a), StatusCode::kInvalidArgument,
                ErrorReason::kMalformed);
  }
  ExpectError(Do(session, RequestOp::kPublish, a, 1u << 5), StatusCode::kInvalidArgument,
              ErrorReason::kMalformed);
  ExpectError(Do(session, RequestOp::kBeginMoment, a, 0xffff), StatusCode::kInvalidArgument,
              ErrorReason::kMalformed);
  EXPECT_EQ(engine_->counters().request_errors, 6u);
}

}  // namespace
}  // namespace geminid::core
