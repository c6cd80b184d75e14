#include "proto/shm/ring.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "proto/shm/session_layout.h"

namespace geminid::shm {
namespace {

using Writer = RingWriter<Request, kRingEntries>;
using Reader = RingReader<Request, kRingEntries>;

class RingTest : public ::testing::Test {
 protected:
  struct Shared {
    Request entries[kRingEntries] = {};
    std::atomic<uint64_t> written{0};
    std::atomic<uint64_t> read{0};
  };
  Request Numbered(uint64_t number) {
    Request request = {};
    request.request_id = number;
    request.bytes = ~number;
    return request;
  }
  std::unique_ptr<Shared> shared_ = std::make_unique<Shared>();
  Writer writer_{shared_->entries, &shared_->written, &shared_->read};
  Reader reader_{shared_->entries, &shared_->written, &shared_->read};
};

TEST_F(RingTest, FullRing_RefusesUntilOneIsTaken) {
  for (uint32_t i = 0; i < kRingEntries; ++i) ASSERT_TRUE(writer_.TryPush(Numbered(i)));
  EXPECT_FALSE(writer_.TryPush(Numbered(0)));
  Request request;
  ASSERT_EQ(reader_.TryPop(&request), Reader::Result::kEntry);
  EXPECT_EQ(request.request_id, 0u);
  EXPECT_TRUE(writer_.TryPush(Numbered(kRingEntries)));
}

TEST_F(RingTest, TwoThreads_DeliverEveryEntryOnceInOrder) {
  constexpr uint64_t kEntries = 200000;
  std::thread producer([this] {
    for (uint64_t i = 0; i < kEntries;) {
      if (writer_.TryPush(Numbered(i))) ++i;
    }
  });
  Request request;
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < kEntries;) {
    const Reader::Result result = reader_.TryPop(&request);
    if (result == Reader::Result::kEmpty) continue;
    ASSERT_EQ(result, Reader::Result::kEntry);
    if (request.request_id != i || request.bytes != ~i) ++wrong;
    ++i;
  }
  producer.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_TRUE(reader_.Empty());
}

TEST_F(RingTest, WriterThatLies_IsFoundOut) {
  Request request;
  shared_->written = 1;  // an entry that was never written
  EXPECT_EQ(reader_.TryPop(&request), Reader::Result::kCorrupt);
  shared_->written = kRingEntries + 1;  // more than fit
  EXPECT_EQ(reader_.TryPop(&request), Reader::Result::kCorrupt);
}

TEST_F(RingTest, ReaderThatLies_CannotMakeTheWriterOverrun) {
  shared_->read = 1000000;
  EXPECT_FALSE(writer_.TryPush(Numbered(0)));
}

}  // namespace
}  // namespace geminid::shm
