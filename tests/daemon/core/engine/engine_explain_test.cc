#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "tests/daemon/core/engine/engine_fixture.h"

namespace geminid::core {
namespace {

using shm::ResponseOp;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

class EngineExplain : public EngineTest {
 protected:
  std::string Explain(SessionId session, ChunkId chunk) {
    const auto lines = engine_->Explain(session, chunk);
    EXPECT_TRUE(lines.ok()) << lines.status();
    return lines.ok() ? absl::StrJoin(*lines, "\n") : "";
  }
};

TEST_F(EngineExplain, AbsentChunk_SaysWhoItIsAndWhereItsHomeIs) {
  const SessionId session = Open(Spec(3));
  const ChunkId chunk = Add(session, ChunkKind::kExpAvg, 2048);
  const std::string text = Explain(session, chunk);
  EXPECT_THAT(text, HasSubstr("\"c1\" of job llm rank 3: exp_avg, 2.0 KiB, state FREE."));
  EXPECT_THAT(text, HasSubstr("It is on host: its home is in pool 1 at offset 0."));
  EXPECT_THAT(text, HasSubstr("It has no copy on device 0."));
}

TEST_F(EngineExplain, ResidentChunk_SaysWhenItLeaves) {
  const SessionId session = OpenWithArena(4);
  const ChunkId a = Add(session, ChunkKind::kGeneric, kSlot);
  const ChunkId b = Add(session, ChunkKind::kGeneric, kSlot);
  for (const ChunkId chunk : {a, b}) {
    MakeResident(session, chunk);
    ASSERT_EQ(Move(session, chunk, ChunkState::kHold).op, ResponseOp::kDone);
  }
  EXPECT_THAT(Explain(session, b), HasSubstr("The session has no plan"));
  EXPECT_THAT(Explain(session, b), HasSubstr("as number 2 of 2, after 4.0 KiB of others"));
  ASSERT_TRUE(engine_->SetPlan(session, {.moments = 8, .chunks = {{a, {3}}, {b, {}}}}).ok());
  EXPECT_THAT(Explain(session, a), HasSubstr("uses it next in 3 moments (now is moment 0 of 8"));
  EXPECT_THAT(Explain(session, b), HasSubstr("The plan does not use it (now is moment 0 of 8); "));
  EXPECT_THAT(Explain(session, b), HasSubstr("as number 1 of 2"));
}

TEST_F(EngineExplain, WhatStays_SaysWhy) {
  const SessionId session = OpenWithArena(8);
  const ChunkId a = Add(session, ChunkKind::kGeneric, kSlot);
  MakeResident(session, a);
  tables_.Lease(session, a);
  EXPECT_THAT(Explain(session, a), HasSubstr("cannot be evicted now: it is leased"));
  tables_.Release(session, a);
  ASSERT_EQ(Move(session, a, ChunkState::kHold, true).op, ResponseOp::kDone);
  EXPECT_THAT(Explain(session, a), HasSubstr("cannot be evicted now: its device copy is newer"));
  EXPECT_THAT(Explain(session, a), HasSubstr("which is stale"));
  const ChunkId b = Add(session, ChunkKind::kGatheredWeight, kSlot);
  Ask(session, MakeTransfer(a, b, 1, shm::kAllocateDestination));
  Place(session, b);
  EXPECT_THAT(Explain(session, b), HasSubstr("is being filled and not yet valid"));
  EXPECT_THAT(Explain(session, b), HasSubstr("It has no home"));
}

TEST_F(EngineExplain, TransferUnderWay_NamesItsTicket) {
  const SessionId session = OpenWithArena(8);
  const ChunkId a = Add(session, ChunkKind::kGeneric, kSlot);
  const shm::Response ticket = Ask(session, MakeTransfer(a, a, 1, shm::kAllocateDestination));
  EXPECT_THAT(Explain(session, a),
              HasSubstr("Ticket " + std::to_string(ticket.ticket) + " is copying into it."));
  Finish(session, ticket);
  EXPECT_THAT(Explain(session, a), Not(HasSubstr("Ticket")));
}

TEST_F(EngineExplain, Unknown_IsNotFound) {
  const SessionId session = Open();
  EXPECT_EQ(engine_->Explain(session, ChunkId{0}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(engine_->Explain(SessionId{77}, ChunkId{0}).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(EngineExplain, Chunks_AreListedUpToTheLimit) {
  const SessionId a = Open();
  const SessionId b = Open(Spec(1));
  for (int i = 0; i < 3; ++i) Add(a, ChunkKind::kWeight, 1);
  Add(b, ChunkKind::kWeight, 1);
  EXPECT_THAT(engine_->Chunks(kNoSession, 100), SizeIs(4));
  EXPECT_THAT(engine_->Chunks(kNoSession, 2), SizeIs(2));
  EXPECT_THAT(engine_->Chunks(b, 100), SizeIs(1));
  EXPECT_EQ(engine_->ChunkCount(kNoSession), 4u);
  EXPECT_EQ(engine_->ChunkCount(a), 3u);
}

}  // namespace
}  // namespace geminid::core
