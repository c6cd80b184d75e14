#include "daemon/service/sessions/session_rings.h"

#include <gtest/gtest.h>

#include "base/mapping.h"

namespace geminid::service {
namespace {

using Requests = shm::RingWriter<shm::Request, shm::kRingEntries>;
using Responses = shm::RingReader<shm::Response, shm::kRingEntries>;

// Both ends of a session's rings.
class SessionRingsTest : public ::testing::Test {
 protected:
  SessionRingsTest()
      : segments_(*memory::SessionSegments::Create(shm::SessionId{7}, 1)),
        memory_(*base::Mapping::Map(segments_.client_fd(), sizeof(shm::ClientSegment))),
        client_(reinterpret_cast<shm::ClientSegment*>(memory_.data())),
        requests_(client_->requests, &client_->cursor.requests_written,
                  &segments_.state()->cursor.requests_read),
        responses_(segments_.state()->responses, &segments_.state()->cursor.responses_written,
                   &client_->cursor.responses_read),
        rings_(segments_) {}

  void Ask(uint64_t id) {
    shm::Request request = {};
    request.request_id = id;
    EXPECT_TRUE(requests_.TryPush(request));
  }
  bool Answer(SessionRings* rings, uint64_t id) {
    shm::Response response = {};
    response.request_id = id;
    return rings->PushResponse(response);
  }

  const memory::SessionSegments segments_;
  const base::Mapping memory_;
  shm::ClientSegment* const client_;
  Requests requests_;
  Responses responses_;
  SessionRings rings_;
};

TEST_F(SessionRingsTest, Request_StaysUntilItIsDone) {
  Ask(1);
  shm::Request request;
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(rings_.PeekRequest(&request), SessionRings::PopResult::kEntry);
    EXPECT_EQ(request.request_id, 1u);
  }
  EXPECT_TRUE(rings_.HasRequest());
  rings_.HasDone();
  EXPECT_FALSE(rings_.HasRequest());
}

TEST_F(SessionRingsTest, ResponsesBeyondTheRing_ComeInOrderOnceThereIsRoom) {
  uint64_t sent = 0;
  while (Answer(&rings_, sent + 1)) ++sent;
  sent += 1;  // the answer that waited
  EXPECT_FALSE(Answer(&rings_, ++sent));
  EXPECT_FALSE(rings_.FlushResponses()) << "the client has read nothing";
  shm::Response response;
  for (uint64_t id = 1; id <= sent; ++id) {
    if (responses_.TryPop(&response) != Responses::Result::kEntry) {
      ADD_FAILURE() << "response " << id << " is lost";
      return;
    }
    EXPECT_EQ(response.request_id, id);
    const bool is_last_that_waits = id >= 2;
    EXPECT_EQ(rings_.FlushResponses(), is_last_that_waits);
  }
}

// The earlier daemon died after its answer and before it removed the request.
TEST_F(SessionRingsTest, RequestThatWasAnswered_IsPassedOverByTheNextDaemon) {
  Ask(1);
  EXPECT_TRUE(Answer(&rings_, 1));
  SessionRings next(segments_);
  next.PassOverAnswered();
  EXPECT_FALSE(next.HasRequest());
}

TEST_F(SessionRingsTest, RequestThatWasNotAnswered_IsThereForTheNextDaemon) {
  Ask(2);
  EXPECT_TRUE(Answer(&rings_, 1));
  SessionRings next(segments_);
  next.PassOverAnswered();
  EXPECT_TRUE(next.HasRequest());
}

}  // namespace
}  // namespace geminid::service
