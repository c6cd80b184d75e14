#include "proto/shm/lease.h"

#include <gtest/gtest.h>

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

TEST(Lease, WordOfAnotherGeneration_IsNoHold) {
  EXPECT_FALSE(IsHeld(LeaseWord{6, 1, 0}.Encode(), 7));
}

TEST(Lease, ForgedWord_CountsAsHeld) { EXPECT_TRUE(IsHeld(LeaseWord{6, 1, 0}.Encode() ^ 1, 7)); }

}  // namespace
}  // namespace geminid::shm
