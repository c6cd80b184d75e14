#include "proto/shm/lease.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace geminid::shm {
namespace {

TEST(StateWord, Fields_SurviveEncoding) {
  const StateWord word{Residency::kEvictPending, 0xabcdef, 0x87654321};
  const StateWord decoded = StateWord::Decode(word.Encode());
  EXPECT_EQ(decoded.residency, word.residency);
  EXPECT_EQ(decoded.generation, word.generation);
  EXPECT_EQ(decoded.slot, word.slot);
  EXPECT_EQ(StateWord::Decode(0).residency, Residency::kNone);
}

TEST(LeaseWord, AnySingleFlippedBit_IsNoticed) {
  const uint64_t word = LeaseWord{0x1234, 3, 1}.Encode();
  ASSERT_TRUE(LeaseWord::IsIntact(word));
  int unnoticed = 0;
  for (int bit = 0; bit < 64; ++bit) {
    if (LeaseWord::IsIntact(word ^ (uint64_t{1} << bit))) ++unnoticed;
  }
  EXPECT_EQ(unnoticed, 0);
}

TEST(Lease, ResidentChunk_IsHeldUntilEveryHoldIsReleased) {
  std::atomic<uint64_t> state{StateWord{Residency::kResident, 7, 42}.Encode()};
  std::atomic<uint64_t> lease{0};
  StateWord held;
  ASSERT_TRUE(TryAcquireLease(state, lease, &held));
  EXPECT_EQ(held.slot, 42u);
  ASSERT_TRUE(TryAcquireLease(state, lease, &held));
  EXPECT_TRUE(IsHeld(lease.load(), 7));
  ReleaseLease(lease);
  EXPECT_TRUE(IsHeld(lease.load(), 7));
  ReleaseLease(lease);
  EXPECT_FALSE(IsHeld(lease.load(), 7));
  EXPECT_EQ(lease.load(), 0u);
}

TEST(Lease, ChunkThatIsNotResident_IsNotHeldAndLeavesNoTrace) {
  for (Residency residency : {Residency::kNone, Residency::kAbsent, Residency::kFilling,
                              Residency::kEvictPending, Residency::kEvicting}) {
    std::atomic<uint64_t> state{StateWord{residency, 7, 0}.Encode()};
    std::atomic<uint64_t> lease{0};
    StateWord held;
    EXPECT_FALSE(TryAcquireLease(state, lease, &held)) << Name(residency);
    EXPECT_EQ(lease.load(), 0u);
  }
}

// A thread that failed on the generation before has not withdrawn its hold yet.
TEST(Lease, HoldOnAnOlderGeneration_IsNotJoined) {
  const uint64_t older = LeaseWord{6, 1, 0}.Encode();
  std::atomic<uint64_t> state{StateWord{Residency::kResident, 7, 0}.Encode()};
  std::atomic<uint64_t> lease{older};
  StateWord held;
  EXPECT_FALSE(TryAcquireLease(state, lease, &held));
  EXPECT_EQ(lease.load(), older);
}

TEST(Lease, AsManyHoldsAsTheWordCounts_AreTheMost) {
  std::atomic<uint64_t> state{StateWord{Residency::kResident, 7, 0}.Encode()};
  std::atomic<uint64_t> lease{0};
  StateWord held;
  for (uint32_t i = 0; i < kMaxLeaseCount; ++i) ASSERT_TRUE(TryAcquireLease(state, lease, &held));
  EXPECT_FALSE(TryAcquireLease(state, lease, &held));
  EXPECT_TRUE(IsHeld(lease.load(), 7));
}

TEST(Lease, ReleaseWithoutAHold_ChangesNothing) {
  std::atomic<uint64_t> lease{0};
  ReleaseLease(lease);
  EXPECT_EQ(lease.load(), 0u);
}

// Its words are read alone: a chunk that is away costs no store, and stops nobody for a moment.
TEST(Lease, ChunkThatIsNotResident_IsNotEvenTried) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* memory = mmap(nullptr, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const std::atomic<uint64_t> state{StateWord{Residency::kAbsent, 7, 0}.Encode()};
  StateWord held;
  // A store would end the program.
  EXPECT_FALSE(TryAcquireLease(state, *static_cast<std::atomic<uint64_t>*>(memory), &held));
  munmap(memory, page);
}

TEST(Lease, WordOfAnotherGeneration_IsNoHold) {
  EXPECT_FALSE(IsHeld(LeaseWord{6, 1, 0}.Encode(), 7));
}

TEST(Lease, ForgedWord_CountsAsHeld) { EXPECT_TRUE(IsHeld(LeaseWord{6, 1, 0}.Encode() ^ 1, 7)); }

}  // namespace
}  // namespace geminid::shm
