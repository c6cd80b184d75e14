#include "proto/shm/ring.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
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

TEST_F(RingTest, Writer_KnowsWhatItWroteUntilItIsOverwritten) {
  const auto has = [this](uint64_t number) {
    return writer_.HasWritten(
        [number](const Request& request) { return request.request_id == number; });
  };
  EXPECT_FALSE(has(0));  // the memory is zero, and nothing was written
  Request request;
  for (uint64_t i = 0; i <= kRingEntries; ++i) {
    ASSERT_TRUE(writer_.TryPush(Numbered(i)));
    ASSERT_EQ(reader_.TryPop(&request), Reader::Result::kEntry);
  }
  EXPECT_FALSE(has(0));
  EXPECT_TRUE(has(1));
  EXPECT_TRUE(has(kRingEntries));
  EXPECT_FALSE(has(kRingEntries + 1));
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

// An entry whose last page cannot be read at first: the fault shows how far the reader was.
struct alignas(4096) WideEntry {
  uint64_t sequence;
  uint64_t words[2 * 512 - 1];
};
struct Fault {
  std::atomic<uint64_t> read{0};
  std::byte* page = nullptr;
  uint64_t read_at_fault = ~uint64_t{0};
};
Fault* current_fault = nullptr;
void OnFault(int) {
  current_fault->read_at_fault = current_fault->read.load();
  mprotect(current_fault->page, 4096, PROT_READ | PROT_WRITE);
}

TEST(Ring, Entry_IsCopiedOutBeforeItsPlaceIsGivenBack) {
  static_assert(sizeof(WideEntry) == 2 * 4096);
  const auto shared = std::make_unique<WideEntry>();
  const auto entry = std::make_unique<WideEntry>();
  std::atomic<uint64_t> written{0};
  Fault fault;
  fault.page = reinterpret_cast<std::byte*>(shared.get()) + 4096;
  current_fault = &fault;
  std::fill(std::begin(entry->words), std::end(entry->words), 7);
  RingWriter<WideEntry, 1> writer(shared.get(), &written, &fault.read);
  ASSERT_TRUE(writer.TryPush(*entry));
  struct sigaction handler = {};
  struct sigaction before = {};
  handler.sa_handler = OnFault;
  sigaction(SIGSEGV, &handler, &before);
  ASSERT_EQ(mprotect(fault.page, 4096, PROT_NONE), 0);
  RingReader<WideEntry, 1> reader(shared.get(), &written, &fault.read);
  const auto result = reader.TryPop(entry.get());
  sigaction(SIGSEGV, &before, nullptr);
  EXPECT_EQ(result, (RingReader<WideEntry, 1>::Result::kEntry));
  EXPECT_EQ(fault.read_at_fault, 0u);
  EXPECT_EQ(fault.read.load(), 1u);
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
