#include "client/zero/core/move_queue.h"

#include <gtest/gtest.h>

namespace geminid::zero {
namespace {

using Kind = MoveQueue::Task::Kind;

bool Current(uint32_t) { return true; }

class MoveQueueTest : public ::testing::Test {
 protected:
  void Gather(uint32_t chunk, uint64_t offset) {
    queue_.Add({.kind = Kind::kGather, .chunk = chunk, .offset = offset});
  }
  // Gathers a chunk completely, with nothing in its way.
  void Settle(uint32_t chunk, uint64_t offset) {
    Gather(chunk, offset);
    ASSERT_TRUE(queue_.TakeStart(Current).has_value());
    queue_.Copied(chunk);
    ASSERT_TRUE(queue_.TakeFront().has_value());
    queue_.Publishing(chunk);
    queue_.Published(chunk);
    ASSERT_TRUE(queue_.Settled(chunk));
  }

  MoveQueue queue_{{10, 10, 10, 10}};
};

TEST_F(MoveQueueTest, GatherOntoAnExtentThatIsLeaving_WaitsUntilItHasLeft) {
  Settle(0, 0);
  EXPECT_TRUE(queue_.Drop(0));
  Gather(1, 5);
  EXPECT_FALSE(queue_.TakeStart(Current).has_value());
  queue_.Left(0);
  EXPECT_EQ(queue_.TakeStart(Current)->chunk, 1u);
}

TEST_F(MoveQueueTest, GatherOntoAClosedRange_WaitsUntilAllItsPointsAreReached) {
  queue_.Close(0, 10, {1, 2});
  queue_.Close(4, 6, {3});
  Gather(0, 5);
  EXPECT_FALSE(queue_.TakeStart(Current).has_value());
  queue_.Reach(1);
  queue_.Reach(3);
  EXPECT_TRUE(queue_.IsClosed(5, 15));
  EXPECT_FALSE(queue_.TakeStart(Current).has_value());
  queue_.Reach(2);
  EXPECT_FALSE(queue_.IsClosed(5, 15));
  EXPECT_EQ(queue_.TakeStart(Current)->chunk, 0u);
}

TEST_F(MoveQueueTest, CopiesOfAChunk_HaveEndedWithTheLast) {
  queue_.Copying(1, 2);
  queue_.Copying(2, 1);
  EXPECT_FALSE(queue_.CopyEnded(1));
  EXPECT_TRUE(queue_.CopyEnded(2));
  EXPECT_TRUE(queue_.CopyEnded(1));
}

TEST_F(MoveQueueTest, ReductionOfAChunkInUse_WaitsAndDropsDoNot) {
  Settle(0, 0);
  Settle(1, 10);
  queue_.Add({.kind = Kind::kReduce, .chunk = 0});
  const auto nothing_unused = [](uint32_t) { return false; };
  EXPECT_FALSE(queue_.TakeFront(nothing_unused).has_value());
  EXPECT_EQ(queue_.TakeFront([](uint32_t) { return true; })->kind, Kind::kReduce);
  queue_.Add({.kind = Kind::kDrop, .chunk = 1});
  EXPECT_EQ(queue_.TakeFront(nothing_unused)->kind, Kind::kDrop);
}

TEST_F(MoveQueueTest, CopiesOfLaterGathers_RunAheadInOrder) {
  Gather(0, 0);
  Gather(1, 10);
  EXPECT_EQ(queue_.TakeStart(Current)->chunk, 0u);
  EXPECT_EQ(queue_.TakeStart(Current)->chunk, 1u);
  queue_.Copied(1);
  EXPECT_FALSE(queue_.TakeFront().has_value());
  queue_.Copied(0);
  EXPECT_EQ(queue_.TakeFront()->chunk, 0u);
  EXPECT_EQ(queue_.TakeFront()->chunk, 1u);
}

TEST_F(MoveQueueTest, WeightsThatAreBeingUpdated_AreNotGathered) {
  Gather(0, 0);
  EXPECT_FALSE(queue_.TakeStart([](uint32_t) { return false; }).has_value());
  EXPECT_TRUE(queue_.TakeStart(Current).has_value());
}

TEST_F(MoveQueueTest, DropOfWhatIsStillComing_WaitsItsTurn) {
  Gather(0, 0);
  EXPECT_FALSE(queue_.Drop(0));
  Gather(0, 20);
  ASSERT_TRUE(queue_.TakeStart(Current).has_value());
  EXPECT_FALSE(queue_.TakeStart(Current).has_value()) << "one chunk has one extent";
  queue_.Copied(0);
  EXPECT_EQ(queue_.TakeFront()->kind, Kind::kGather);
  queue_.Publishing(0);
  EXPECT_FALSE(queue_.TakeFront().has_value());
  queue_.Published(0);
  EXPECT_FALSE(queue_.Settled(0)) << "it is about to leave";
  EXPECT_EQ(queue_.TakeFront()->kind, Kind::kDrop);
  queue_.Left(0);
  EXPECT_EQ(queue_.TakeStart(Current)->offset, 20u);
}

TEST_F(MoveQueueTest, Range_IsClearOnceNothingLiesThereOrIsStillToCome) {
  Gather(0, 20);
  EXPECT_FALSE(queue_.Clear(25, 40));
  EXPECT_TRUE(queue_.Clear(30, 40));
  ASSERT_TRUE(queue_.TakeStart(Current).has_value());
  EXPECT_FALSE(queue_.Clear(0, 21));
}

TEST_F(MoveQueueTest, GatherToHostOfWhatIsBeingUpdated_WaitsForItsUpdate) {
  queue_.Add({.kind = Kind::kGatherToHost, .chunk = 1});
  EXPECT_FALSE(queue_.TakeFront(nullptr, [](uint32_t chunk) { return chunk != 1; }).has_value());
  EXPECT_TRUE(queue_.TakeFront(nullptr, Current).has_value());
}

TEST_F(MoveQueueTest, MovesThatRanksMakeTogether_AreNumberedAlikeWhateverElseARankDoes) {
  Settle(3, 30);
  queue_.Drop(3);
  queue_.Add({.kind = Kind::kOpen, .chunk = 2, .offset = 0});
  queue_.Add({.kind = Kind::kGatherToHost, .chunk = 1});
  ASSERT_TRUE(queue_.TakeStart(Current).has_value());
  queue_.Copied(2);
  EXPECT_EQ(queue_.TakeFront()->chunk, 2u);
  EXPECT_EQ(queue_.TakeFront()->number, 1u);
}

}  // namespace
}  // namespace geminid::zero
