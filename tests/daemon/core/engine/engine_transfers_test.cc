#include "gmock/gmock.h"
#include "tests/daemon/core/engine/engine_fixture.h"

namespace geminid::core {
namespace {

using absl::StatusCode;
using shm::ErrorReason;
using shm::RequestOp;
using shm::Residency;
using shm::ResponseOp;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class EngineTransfers : public EngineTest {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    session_ = OpenWithArena(64);
    weight_ = Add(session_, ChunkKind::kWeight, 1000);
    gradient_ = Add(session_, ChunkKind::kGradient, 1000);
    generic_ = Add(session_, ChunkKind::kGeneric, 10000);
    gathered_ = Add(session_, ChunkKind::kGatheredWeight, 4000);
  }
  void MakeDirty() {
    MakeResident(session_, generic_);
    ASSERT_EQ(Move(session_, generic_, ChunkState::kHold, true).op, ResponseOp::kDone);
  }
  shm::Request WriteBack(uint64_t offset, uint64_t bytes, uint16_t flags = 0) {
    shm::Request request = MakeTransfer(generic_, generic_, bytes, flags);
    request.source_offset = request.destination_offset = offset;
    return request;
  }

  SessionId session_{};
  ChunkId weight_{};
  ChunkId gradient_{};
  ChunkId generic_{};
  ChunkId gathered_{};
};

TEST_F(EngineTransfers, Gather_TicketSaysBothPlaces) {
  shm::Request request =
      MakeTransfer(weight_, gathered_, 600, shm::kAllocateDestination, 8 * kSlot);
  request.source_offset = 100;
  request.destination_offset = 3000;
  const shm::Response ticket = Ask(session_, request);
  EXPECT_EQ(ticket.op, ResponseOp::kTicket);
  EXPECT_EQ(ticket.direction, Direction::kHostToDevice);
  const ChunkSnapshot source = SnapshotOf(session_, weight_);
  EXPECT_EQ(ticket.pool, source.identity.pool);
  EXPECT_EQ(ticket.host_offset, source.identity.home_offset + 100);
  EXPECT_EQ(ticket.device_offset, 8 * kSlot + 3000);
  EXPECT_EQ(ticket.bytes, 600u);
  EXPECT_LT(ticket.completion_index, shm::kCompletionWords);
  EXPECT_NE(ticket.ticket, 0u);
  EXPECT_EQ(SnapshotOf(session_, gathered_).pins, 1u);
  EXPECT_EQ(shm::Value(engine_->manifest().Transfer(RecordIndex{3})), ticket.ticket);

  EXPECT_THAT(Finish(session_, ticket), IsEmpty());
  EXPECT_EQ(SnapshotOf(session_, gathered_).pins, 0u);
  EXPECT_EQ(engine_->manifest().Transfer(RecordIndex{3}), kNoTicket);
  // The request did not ask to publish.
  EXPECT_EQ(ResidencyOf(session_, gathered_), Residency::kFilling);
}

TEST_F(EngineTransfers, Pieces_PublishWhenTheLastIsDone) {
  shm::Request first = MakeTransfer(weight_, gathered_, 500, shm::kAllocateDestination);
  shm::Request last = MakeTransfer(weight_, gathered_, 500, shm::kPublishWhenDone);
  last.source_offset = last.destination_offset = 500;
  const shm::Response a = Ask(session_, first);
  const shm::Response b = Ask(session_, last);
  EXPECT_THAT(Finish(session_, b), IsEmpty());  // out of order
  EXPECT_EQ(ResidencyOf(session_, gathered_), Residency::kFilling);
  EXPECT_THAT(Finish(session_, a), IsEmpty());
  EXPECT_EQ(ResidencyOf(session_, gathered_), Residency::kResident);
  EXPECT_EQ(SnapshotOf(session_, gathered_).status.valid, ValidLocation::kDevice);
}

TEST_F(EngineTransfers, PublishDuringACopy_IsRefused) {
  const shm::Response ticket =
      Ask(session_, MakeTransfer(weight_, gathered_, 500, shm::kAllocateDestination));
  ExpectError(Do(session_, RequestOp::kPublish, gathered_), StatusCode::kFailedPrecondition,
              ErrorReason::kExtentBusy);
  Finish(session_, ticket);
  EXPECT_EQ(Do(session_, RequestOp::kPublish, gathered_).op, ResponseOp::kDone);
}

TEST_F(EngineTransfers, LoadInPieces_MayRepeatTheFlagForTheSamePlace) {
  const uint16_t flags = shm::kAllocateDestination;
  shm::Request piece = MakeTransfer(generic_, generic_, 5000, flags, 2 * kSlot);
  EXPECT_EQ(Ask(session_, piece).op, ResponseOp::kTicket);
  piece.source_offset = piece.destination_offset = 5000;
  piece.request_id = ++request_ids_;
  EXPECT_EQ(Ask(session_, piece).op, ResponseOp::kTicket);
  piece.device_offset = 4 * kSlot;
  piece.request_id = ++request_ids_;
  ExpectError(Ask(session_, piece), StatusCode::kFailedPrecondition, ErrorReason::kExtentBusy);
}

TEST_F(EngineTransfers, ReducedGradient_GoesHomeAndItsExtentIsFreed) {
  MakeResident(session_, gathered_);
  const shm::Response ticket =
      Ask(session_, MakeTransfer(gathered_, gradient_, 1000, shm::kDropSourceWhenDone));
  EXPECT_EQ(ticket.op, ResponseOp::kTicket);
  EXPECT_EQ(ticket.direction, Direction::kDeviceToHost);
  EXPECT_EQ(ticket.host_offset, SnapshotOf(session_, gradient_).identity.home_offset);
  ExpectError(Do(session_, RequestOp::kDrop, gathered_), StatusCode::kFailedPrecondition,
              ErrorReason::kExtentBusy);
  EXPECT_THAT(Finish(session_, ticket), IsEmpty());
  EXPECT_EQ(ResidencyOf(session_, gathered_), Residency::kAbsent);
  EXPECT_EQ(engine_->transfers()
                .TotalsOf(session_)
                .At(Direction::kDeviceToHost, TransferCause::kDemand)
                .bytes,
            1000u);
}

TEST_F(EngineTransfers, DropWhenDone_LeasedIsAnErrorOfTheDone) {
  MakeResident(session_, gathered_);
  const shm::Response ticket =
      Ask(session_, MakeTransfer(gathered_, gradient_, 1000, shm::kDropSourceWhenDone));
  tables_.Lease(session_, gathered_);
  const std::vector<Outgoing> out = Finish(session_, ticket);
  ASSERT_THAT(out, SizeIs(1));
  ExpectError(out[0].response, StatusCode::kFailedPrecondition, ErrorReason::kLeased);
  EXPECT_EQ(ResidencyOf(session_, gathered_), Residency::kResident);
  EXPECT_EQ(SnapshotOf(session_, gathered_).pins, 0u);
}

TEST_F(EngineTransfers, ScratchExtent_CanBeSavedWithoutPublishing) {
  ASSERT_EQ(Place(session_, gathered_).op, ResponseOp::kDone);
  const shm::Response ticket = Ask(session_, MakeTransfer(gathered_, gradient_, 1000, 0));
  EXPECT_EQ(ticket.op, ResponseOp::kTicket);
  Finish(session_, ticket);
  EXPECT_EQ(Do(session_, RequestOp::kDrop, gathered_).op, ResponseOp::kDone);
}

TEST_F(EngineTransfers, WriteBack_InAnyOrderMakesClean) {
  MakeDirty();
  std::vector<shm::Response> tickets;
  for (const auto& [offset, bytes] :
       {std::pair<uint64_t, uint64_t>{0, 4000}, {4000, 3000}, {7000, 3000}}) {
    tickets.push_back(Ask(session_, WriteBack(offset, bytes)));
    ASSERT_EQ(tickets.back().op, ResponseOp::kTicket);
  }
  Finish(session_, tickets[2]);
  Finish(session_, tickets[0]);
  EXPECT_TRUE(SnapshotOf(session_, generic_).status.dirty);
  EXPECT_EQ(SnapshotOf(session_, generic_).status.valid, ValidLocation::kDevice);
  Finish(session_, tickets[1]);
  EXPECT_FALSE(SnapshotOf(session_, generic_).status.dirty);
  EXPECT_EQ(SnapshotOf(session_, generic_).status.valid, ValidLocation::kHome);
  EXPECT_EQ(Do(session_, RequestOp::kDrop, generic_).op, ResponseOp::kDone);
}

TEST_F(EngineTransfers, WriteBack_OfOlderContentLeavesItDirty) {
  MakeDirty();
  const shm::Response old = Ask(session_, WriteBack(0, 10000));
  ASSERT_EQ(Move(session_, generic_, ChunkState::kHold, true).op, ResponseOp::kDone);
  Finish(session_, old);
  EXPECT_TRUE(SnapshotOf(session_, generic_).status.dirty);
  Finish(session_, Ask(session_, WriteBack(0, 10000)));
  EXPECT_FALSE(SnapshotOf(session_, generic_).status.dirty);
}

TEST_F(EngineTransfers, WriteBack_WithDropLeavesTheDevice) {
  MakeDirty();
  const shm::Response ticket = Ask(session_, WriteBack(0, 10000, shm::kDropSourceWhenDone));
  EXPECT_THAT(Finish(session_, ticket), IsEmpty());
  EXPECT_EQ(ResidencyOf(session_, generic_), Residency::kAbsent);
}

TEST_F(EngineTransfers, HalfAWriteBack_WithDropIsRefused) {
  MakeDirty();
  const shm::Response ticket = Ask(session_, WriteBack(0, 9999, shm::kDropSourceWhenDone));
  const std::vector<Outgoing> out = Finish(session_, ticket);
  ASSERT_THAT(out, SizeIs(1));
  ExpectError(out[0].response, StatusCode::kFailedPrecondition, ErrorReason::kNone);
  EXPECT_EQ(SnapshotOf(session_, generic_).status.valid, ValidLocation::kDevice);
}

TEST_F(EngineTransfers, StateChunk_MayBeMadeResident) {
  const shm::Response ticket =
      Ask(session_,
          MakeTransfer(weight_, weight_, 1000, shm::kAllocateDestination | shm::kPublishWhenDone));
  EXPECT_EQ(ticket.direction, Direction::kHostToDevice);
  Finish(session_, ticket);
  EXPECT_EQ(ResidencyOf(session_, weight_), Residency::kResident);
  EXPECT_EQ(SnapshotOf(session_, weight_).status.valid, ValidLocation::kHome);
  // A transfer may read its clean home copy, but not its dirty one.
  EXPECT_EQ(Ask(session_, MakeTransfer(weight_, gathered_, 10, shm::kAllocateDestination)).op,
            ResponseOp::kTicket);
  ASSERT_EQ(Move(session_, weight_, ChunkState::kHold, true).op, ResponseOp::kDone);
  ExpectError(Ask(session_, MakeTransfer(weight_, gathered_, 10, 0)),
              StatusCode::kFailedPrecondition, ErrorReason::kAlreadyResident);
}

TEST_F(EngineTransfers, PairsThatMakeNoSense_AreMalformed) {
  const ChunkId other = Add(session_, ChunkKind::kGatheredWeight, 4000);
  MakeResident(session_, gathered_);
  const auto malformed = [&](ChunkId source, ChunkId destination, uint16_t flags) {
    ExpectError(Ask(session_, MakeTransfer(source, destination, 10, flags)),
                StatusCode::kInvalidArgument, ErrorReason::kMalformed);
  };
  malformed(weight_, gradient_, 0);
  malformed(gathered_, other, shm::kAllocateDestination);
  malformed(gathered_, gathered_, 0);
  malformed(weight_, other, shm::kAllocateDestination | shm::kDropSourceWhenDone);
  malformed(gathered_, gradient_, shm::kPublishWhenDone);
  malformed(gathered_, gradient_, shm::kAllocateDestination);
  shm::Request crooked = WriteBack(0, 10, shm::kAllocateDestination);
  crooked.source_offset = 1;
  ExpectError(Ask(session_, crooked), StatusCode::kInvalidArgument, ErrorReason::kMalformed);
}

TEST_F(EngineTransfers, ForeignFields_AreValidated) {
  const auto refused = [&](auto change, StatusCode code, ErrorReason reason) {
    shm::Request request = MakeTransfer(weight_, gathered_, 10, shm::kAllocateDestination);
    change(&request);
    ExpectError(Ask(session_, request), code, reason);
    EXPECT_EQ(ResidencyOf(session_, gathered_), Residency::kAbsent);
  };
  const auto none = ~uint64_t{0};
  using R = shm::Request;
  refused([](R* r) { r->bytes = 0; }, StatusCode::kInvalidArgument, ErrorReason::kMalformed);
  refused([](R* r) { r->priority = static_cast<Priority>(3); }, StatusCode::kInvalidArgument,
          ErrorReason::kMalformed);
  refused([](R* r) { r->cause = TransferCause::kNone; }, StatusCode::kInvalidArgument,
          ErrorReason::kMalformed);
  refused([](R* r) { r->cause = static_cast<TransferCause>(5); }, StatusCode::kInvalidArgument,
          ErrorReason::kMalformed);
  refused([](R* r) { r->source = ChunkId{9999}; }, StatusCode::kNotFound,
          ErrorReason::kUnknownChunk);
  refused([](R* r) { r->destination = shm::kNoChunk; }, StatusCode::kNotFound,
          ErrorReason::kUnknownChunk);
  refused([](R* r) { r->bytes = 1001; }, StatusCode::kOutOfRange, ErrorReason::kOutOfRange);
  refused([](R* r) { r->source_offset = 991; }, StatusCode::kOutOfRange, ErrorReason::kOutOfRange);
  refused([](R* r) { r->destination_offset = 3991; }, StatusCode::kOutOfRange,
          ErrorReason::kOutOfRange);
  refused([&](R* r) { r->source_offset = none - 4; }, StatusCode::kOutOfRange,
          ErrorReason::kOutOfRange);
  refused([&](R* r) { r->bytes = none; }, StatusCode::kOutOfRange, ErrorReason::kOutOfRange);
  refused([](R* r) { r->device_offset = 7; }, StatusCode::kInvalidArgument,
          ErrorReason::kMalformed);
  refused([](R* r) { r->device_offset = 64 * kSlot; }, StatusCode::kOutOfRange,
          ErrorReason::kOutOfRange);
  refused([](R* r) { r->flags = 0; }, StatusCode::kFailedPrecondition, ErrorReason::kNotResident);
}

TEST_F(EngineTransfers, WrongResidency_IsSaid) {
  ExpectError(Ask(session_, MakeTransfer(gathered_, gradient_, 10, 0)),
              StatusCode::kFailedPrecondition, ErrorReason::kNotResident);
  ExpectError(Ask(session_, WriteBack(0, 10)), StatusCode::kFailedPrecondition,
              ErrorReason::kNotResident);
  MakeResident(session_, gathered_);
  ExpectError(Ask(session_, MakeTransfer(weight_, gathered_, 10, shm::kAllocateDestination)),
              StatusCode::kFailedPrecondition, ErrorReason::kAlreadyResident);
  MakeResident(session_, gradient_);
  ExpectError(Ask(session_, MakeTransfer(gathered_, gradient_, 10, 0)),
              StatusCode::kFailedPrecondition, ErrorReason::kAlreadyResident);
}

TEST_F(EngineTransfers, Done_UnknownTicketOrUnwrittenWordIsAnError) {
  const uint64_t first = FirstTicketOf(engine_->manifest().epoch());
  ExpectError(Do(session_, RequestOp::kTransferDone, shm::kNoChunk, 0, first + 12345),
              StatusCode::kNotFound, ErrorReason::kUnknownTicket);
  // The next daemon settled the ticket of the earlier daemon when it took over.
  EXPECT_THAT(Send(session_, Make(RequestOp::kTransferDone, shm::kNoChunk, 0, first - 1)),
              IsEmpty());
  const shm::Response ticket =
      Ask(session_, MakeTransfer(weight_, gathered_, 10, shm::kAllocateDestination));
  ExpectError(Do(session_, RequestOp::kTransferDone, shm::kNoChunk, 0, ticket.ticket),
              StatusCode::kInvalidArgument, ErrorReason::kMalformed);
  EXPECT_EQ(SnapshotOf(session_, gathered_).pins, 1u);
  EXPECT_THAT(Finish(session_, ticket), IsEmpty());
  const std::vector<Outgoing> twice = Finish(session_, ticket);
  ASSERT_THAT(twice, SizeIs(1));
  ExpectError(twice[0].response, StatusCode::kNotFound, ErrorReason::kUnknownTicket);
}

TEST_F(EngineTransfers, OtherSessionsTicket_IsUnknown) {
  const shm::Response ticket =
      Ask(session_, MakeTransfer(weight_, gathered_, 10, shm::kAllocateDestination));
  const SessionId other = Open(Spec(1));
  tables_.sessions[other].completion[ticket.completion_index] = ticket.ticket;
  ExpectError(Do(other, RequestOp::kTransferDone, shm::kNoChunk, 0, ticket.ticket),
              StatusCode::kNotFound, ErrorReason::kUnknownTicket);
}

TEST_F(EngineTransfers, CreditsExhausted_TicketComesWithTheNextDone) {
  options_.transfers.tickets_in_flight = 1;
  options_.transfers.small_bytes_in_flight = 0;
  EngineTransfers::SetUp();
  const shm::Response first =
      Ask(session_, MakeTransfer(weight_, gathered_, 10, shm::kAllocateDestination));
  ASSERT_EQ(first.op, ResponseOp::kTicket);
  const shm::Request second = MakeTransfer(weight_, gathered_, 20, 0);
  EXPECT_THAT(Send(session_, second), IsEmpty());
  EXPECT_EQ(engine_->Sessions()[0].queued_transfers, 1u);
  const std::vector<Outgoing> out = Finish(session_, first);
  ASSERT_THAT(out, SizeIs(1));
  EXPECT_EQ(out[0].response.request_id, second.request_id);
  EXPECT_EQ(out[0].response.bytes, 20u);
}

TEST_F(EngineTransfers, FullQueue_IsRefusedAndTakesNoExtent) {
  options_.transfers.tickets_in_flight = 1;
  options_.transfers.small_bytes_in_flight = 0;
  options_.transfers.queued_per_session = 1;
  EngineTransfers::SetUp();
  Ask(session_, MakeTransfer(weight_, gathered_, 10, shm::kAllocateDestination));
  Ask(session_, MakeTransfer(weight_, gathered_, 10, 0));
  ExpectError(Ask(session_, WriteBack(0, 10, shm::kAllocateDestination)),
              StatusCode::kResourceExhausted, ErrorReason::kQueueFull);
  EXPECT_EQ(ResidencyOf(session_, generic_), Residency::kAbsent);
}

TEST_F(EngineTransfers, OverdueTicket_MarksTheSessionSlow) {
  const shm::Response ticket =
      Ask(session_, MakeTransfer(weight_, gathered_, 10, shm::kAllocateDestination));
  std::vector<Outgoing> out;
  EXPECT_EQ(engine_->NextTick(), now_ + Duration::Seconds(5));
  engine_->Tick(now_ + Duration::Seconds(5), &out);
  EXPECT_TRUE(engine_->Sessions()[0].slow);
  Finish(session_, ticket);
  EXPECT_FALSE(engine_->Sessions()[0].slow);
  EXPECT_THAT(out, IsEmpty());
}

TEST_F(EngineTransfers, DeadSessionsCredits_GoToTheOthers) {
  options_.transfers.link_bytes_in_flight = 10;
  EngineTransfers::SetUp();
  Ask(session_, MakeTransfer(weight_, gathered_, 10, shm::kAllocateDestination));
  const SessionId other = OpenWithArena(8, Spec(1));
  const ChunkId weight = Add(other, ChunkKind::kWeight, 100);
  EXPECT_THAT(Send(other, MakeTransfer(weight, weight, 10, shm::kAllocateDestination)), IsEmpty());
  ASSERT_TRUE(engine_->CloseSession(session_, CloseReason::kDied, now_).ok());
  EXPECT_EQ(engine_->NextTick(), Time());
  std::vector<Outgoing> out;
  engine_->Tick(now_, &out);
  EXPECT_EQ(engine_->NextTick(), now_ + Duration::Seconds(5));
  ASSERT_THAT(out, SizeIs(1));
  EXPECT_EQ(out[0].session, other);
  EXPECT_EQ(out[0].response.op, ResponseOp::kTicket);
}

}  // namespace
}  // namespace geminid::core
