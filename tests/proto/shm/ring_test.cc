#include "proto/shm/ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
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

// Entries so large, in a ring of one, that the writer is at the next one while a reader that gave
// the place back too early would still be copying.
struct WideEntry {
  uint64_t sequence;
  uint64_t words[8191];
};
TEST(Ring, WideEntries_AreCopiedOutBeforeTheirPlaceIsGivenBack) {
  constexpr uint64_t kEntries = 2000;
  auto shared = std::make_unique<WideEntry>();
  std::atomic<uint64_t> written{0};
  std::atomic<uint64_t> read{0};
  std::thread producer([&] {
    RingWriter<WideEntry, 1> writer(shared.get(), &written, &read);
    auto entry = std::make_unique<WideEntry>();
    for (uint64_t i = 0; i < kEntries; ++i) {
      std::fill(std::begin(entry->words), std::end(entry->words), i);
      while (!writer.TryPush(*entry)) std::this_thread::yield();
    }
  });
  RingReader<WideEntry, 1> reader(shared.get(), &written, &read);
  auto entry = std::make_unique<WideEntry>();
  uint64_t torn = 0;
  for (uint64_t i = 0; i < kEntries; ++i) {
    while (reader.TryPop(entry.get()) == RingReader<WideEntry, 1>::Result::kEmpty) {
      std::this_thread::yield();
    }
    torn += entry->words[0] != i || entry->words[8190] != i ? 1 : 0;
  }
  producer.join();
  EXPECT_EQ(torn, 0u);
}

TEST_F(RingTest, WriterThatLies_IsFoundOut) {
  Request request;
  shared_->written = 1;  // an entry that was never written
  EXPECT_EQ(reader_.TryPop(&request), Reader::Result::kCorrupt);
  shared_->written = kRingEntries + 1;  // more than fit
  EXPECT_EQ(reader_.TryPop(&request), Reader::Result::kCorrupt);
}

// The entries are what they should be, and only the index lies.
TEST_F(RingTest, WriterWhoseIndexLies_IsFoundOutWhateverTheEntriesSay) {
  Request request;
  ASSERT_TRUE(writer_.TryPush(Numbered(0)));
  ASSERT_TRUE(writer_.TryPush(Numbered(1)));
  shared_->written = kRingEntries + 1;
  EXPECT_EQ(reader_.TryPop(&request), Reader::Result::kCorrupt);
  shared_->written = 2;
  ASSERT_EQ(reader_.TryPop(&request), Reader::Result::kEntry);
  shared_->written = 0;  // it goes back
  EXPECT_EQ(reader_.TryPop(&request), Reader::Result::kCorrupt);
}

TEST_F(RingTest, ReaderThatLies_CannotMakeTheWriterOverrun) {
  for (const uint64_t read : {uint64_t{1}, uint64_t{1000000}, ~uint64_t{0}}) {
    shared_->read = read;
    EXPECT_FALSE(writer_.TryPush(Numbered(0))) << read;
  }
}

}  // namespace
}  // namespace geminid::shm
