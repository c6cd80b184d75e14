#include "client/src/request_outbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "client/src/wire.h"

namespace geminid {
namespace {

using ::testing::ElementsAre;
using SendOrder = RequestOutbox::SendOrder;

// The test reads the daemon's end itself.
class RequestOutboxTest : public ::testing::Test {
 protected:
  void Add(uint32_t chunk, SendOrder turn, bool answered = true) {
    shm::Request request = MakeRequest(shm::RequestOp::kDrop);
    request.destination = shm::ChunkId{chunk};
    const RequestOutbox::Handler handler = [](const Answer&) {};
    outbox_.Add(request, answered ? handler : nullptr, turn);
  }

  // The requests in the ring, as the daemon finds them. Reading makes room.
  std::vector<shm::Request> Read() {
    std::vector<shm::Request> requests;
    shm::Request request;
    while (reader_.TryPop(&request) == decltype(reader_)::Result::kEntry) {
      requests.push_back(request);
    }
    return requests;
  }
  static std::vector<uint32_t> ChunksOf(const std::vector<shm::Request>& requests) {
    std::vector<uint32_t> chunks;
    for (const shm::Request& request : requests) chunks.push_back(shm::Index(request.destination));
    return chunks;
  }

  const std::unique_ptr<shm::StateSegment> state_ = std::make_unique<shm::StateSegment>();
  const std::unique_ptr<shm::ClientSegment> client_ = std::make_unique<shm::ClientSegment>();
  shm::RingReader<shm::Request, shm::kRingEntries> reader_{
      client_->requests, &client_->cursor.requests_written, &state_->cursor.requests_read};
  RequestOutbox outbox_{state_.get(), client_.get()};
};

TEST_F(RequestOutboxTest, UrgentRequests_LeaveBeforeThoseInOrder) {
  Add(1, SendOrder::kInOrder);
  Add(2, SendOrder::kInOrder);
  Add(3, SendOrder::kUrgent);
  EXPECT_TRUE(outbox_.Flush());
  EXPECT_THAT(ChunksOf(Read()), ElementsAre(3, 1, 2));
  EXPECT_FALSE(outbox_.Flush());
}

TEST_F(RequestOutboxTest, HalfARingOfUnansweredRequests_HoldsUpThoseInOrderAlone) {
  for (uint32_t i = 0; i <= shm::kRingEntries / 2; ++i) Add(i, SendOrder::kInOrder);
  EXPECT_TRUE(outbox_.Flush());
  const std::vector<shm::Request> first = Read();
  EXPECT_EQ(first.size(), shm::kRingEntries / 2);
  EXPECT_FALSE(outbox_.CanFlush());
  Add(7, SendOrder::kUrgent);
  EXPECT_TRUE(outbox_.Flush());
  EXPECT_THAT(ChunksOf(Read()), ElementsAre(7));
  // The urgent request is due, too.
  EXPECT_NE(outbox_.Answered(first[0].request_id), nullptr);
  EXPECT_FALSE(outbox_.Flush());
  EXPECT_NE(outbox_.Answered(first[1].request_id), nullptr);
  EXPECT_TRUE(outbox_.Flush());
  EXPECT_THAT(ChunksOf(Read()), ElementsAre(shm::kRingEntries / 2));
}

TEST_F(RequestOutboxTest, NoticesThatNobodyWaitsFor_AreLimitedByTheRingAlone) {
  for (uint32_t i = 0; i <= shm::kRingEntries; ++i) Add(i, SendOrder::kInOrder, /*answered=*/false);
  EXPECT_TRUE(outbox_.Flush());
  EXPECT_TRUE(outbox_.CanFlush());
  const std::vector<shm::Request> notices = Read();
  EXPECT_EQ(notices.size(), shm::kRingEntries);
  EXPECT_TRUE(RequestOutbox::IsNotice(notices[0].request_id));
  EXPECT_FALSE(outbox_.any_unanswered());
  EXPECT_EQ(outbox_.Waited().count(), 0);
}

TEST_F(RequestOutboxTest, AnswerThatComesTwice_IsWaitedForOnce) {
  Add(1, SendOrder::kInOrder);
  (void)outbox_.Flush();
  const uint64_t id = Read()[0].request_id;
  EXPECT_FALSE(RequestOutbox::IsNotice(id));
  EXPECT_NE(outbox_.Answered(id), nullptr);
  EXPECT_EQ(outbox_.Answered(id), nullptr);
  EXPECT_EQ(outbox_.Answered(id + 1), nullptr);
}

TEST_F(RequestOutboxTest, GivenUp_NamesAllWhoWaitAndSendsNothingMore) {
  for (uint32_t i = 0; i < shm::kRingEntries; ++i) Add(i, SendOrder::kInOrder);
  (void)outbox_.Flush();
  (void)Read();
  EXPECT_EQ(outbox_.GiveUp().size(), shm::kRingEntries);
  EXPECT_FALSE(outbox_.any_unanswered());
  EXPECT_FALSE(outbox_.Flush());
}

}  // namespace
}  // namespace geminid
