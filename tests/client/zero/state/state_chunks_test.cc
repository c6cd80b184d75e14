#include "client/zero/state/state_chunks.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "client/src/session_internal.h"
#include "tests/client/zero/rooms_fixture.h"

namespace geminid::zero {
namespace {

constexpr uint64_t kBytes = 64 << 10;

class StateChunksTest : public RoomsTest {
 protected:
  void SetUp() override {
    RoomsTest::SetUp();
    auto compute = Compute::Create(DeviceOf(*session_), "test", absl::Seconds(30));
    ASSERT_TRUE(compute.ok()) << compute.status();
    compute_ = *std::move(compute);
    chunks_ = std::make_unique<StateChunks>(session_.get(), absl::Seconds(30));
  }

  std::vector<ChunkId> Make(bool has_home, size_t count) {
    auto ids = chunks_->Allocate(
        std::vector<ChunkSpec>(count, {"state", ChunkKind::kWeight, kBytes, has_home}));
    EXPECT_TRUE(ids.ok()) << ids.status();
    return *std::move(ids);
  }

  std::unique_ptr<Compute> compute_;
  std::unique_ptr<StateChunks> chunks_;
};

TEST_F(StateChunksTest, WhatHasNoHome_LeavesTheArenaAndComesBackAsItWas) {
  const std::vector<ChunkId> ids = Make(/*has_home=*/false, 2);
  ASSERT_TRUE(chunks_->Place(ids, compute_->on_device()).ok());
  EXPECT_EQ(chunks_->device_bytes(), 2 * kBytes);
  std::byte* const address = session_->Device(ids[1]);
  EXPECT_EQ(*address, std::byte{0});
  std::fill_n(address, kBytes, std::byte{7});
  ASSERT_TRUE(chunks_->PrepareToLeave().ok());
  EXPECT_EQ(chunks_->all().size(), 5u);  // each has a swap chunk, and there is a note
  ASSERT_TRUE(chunks_->Leave().ok());
  EXPECT_EQ(session_->ResidencyOf(ids[1]), geminid::Residency::kAbsent);
  ASSERT_TRUE(chunks_->Return().ok());
  EXPECT_EQ(session_->Device(ids[1]), address);
  EXPECT_TRUE(
      std::all_of(address, address + kBytes, [](std::byte b) { return b == std::byte{7}; }));
  EXPECT_EQ(chunks_->all(), ids);
}

TEST_F(StateChunksTest, HomesThatMoveIn_LieOneBehindTheOther) {
  const std::vector<ChunkId> ids = Make(/*has_home=*/true, 2);
  std::fill_n(session_->Home(ids[1]), kBytes, std::byte{3});
  ASSERT_TRUE(chunks_->MoveIn(ids).ok());
  EXPECT_EQ(session_->Device(ids[1]), session_->arena() + kBytes);
  EXPECT_EQ(*session_->Device(ids[1]), std::byte{3});
  EXPECT_EQ(chunks_->device_bytes(), 2 * kBytes);
}

TEST_F(StateChunksTest, PlacesThatAreOpen_ComeBackToBeFilledAgain) {
  const std::vector<ChunkId> ids = Make(/*has_home=*/false, 2);
  const std::vector<ChunkId> homes = Make(/*has_home=*/true, 1);
  ASSERT_TRUE(chunks_->PlaceOpen(ids).ok());
  EXPECT_EQ(chunks_->device_bytes(), 2 * kBytes);
  EXPECT_FALSE(session_->TryLease(ids[1]).has_value());
  std::byte* const address = session_->Device(ids[1]);
  const auto copy_there_and_back = [&](std::byte value) {
    std::fill_n(address, kBytes, value);
    const auto copy = [&](ChunkId from, ChunkId to) {
      return session_->Transfer({.source = from, .destination = to, .bytes = kBytes})
          .Wait(absl::Seconds(30));
    };
    EXPECT_TRUE(copy(ids[1], homes[0]).ok());
    std::fill_n(address, kBytes, std::byte{0});
    EXPECT_TRUE(copy(homes[0], ids[1]).ok());
    EXPECT_EQ(std::count(address, address + kBytes, value), kBytes);
  };
  copy_there_and_back(std::byte{5});
  ASSERT_TRUE(chunks_->PrepareToLeave().ok());
  EXPECT_EQ(chunks_->all().size(), 3u) << "their contents need no refuge";
  ASSERT_TRUE(chunks_->Leave().ok());
  EXPECT_EQ(session_->ResidencyOf(ids[1]), geminid::Residency::kAbsent);
  ASSERT_TRUE(chunks_->Return().ok());
  EXPECT_EQ(session_->Device(ids[1]), address);
  copy_there_and_back(std::byte{6});
}

TEST_F(StateChunksTest, WhatStaysOnTheHost_IsInItsRefuge) {
  const std::vector<ChunkId> ids = Make(/*has_home=*/true, 1);
  ASSERT_TRUE(chunks_->MoveIn(ids).ok());
  ASSERT_TRUE(chunks_->PrepareToLeave().ok());
  ASSERT_TRUE(chunks_->Leave().ok());
  const std::map<ChunkId, ChunkId> swap_chunks = chunks_->StayOnHost();
  EXPECT_EQ(swap_chunks.at(ids[0]), ids[0]);
  EXPECT_EQ(chunks_->device_bytes(), 0u);
}

TEST_F(StateChunksTest, ContentsThatLeftTheArena_AreInRefugesOnlyIfTheyAreNotedAsWhole) {
  const std::vector<ChunkId> ids = Make(/*has_home=*/false, 2);
  ASSERT_TRUE(chunks_->Place(ids, compute_->on_device()).ok());
  ASSERT_TRUE(chunks_->PrepareToLeave().ok());
  EXPECT_EQ(chunks_->ContentsOf(ids[1]), ids[1]);
  ASSERT_TRUE(chunks_->Leave().ok());
  EXPECT_EQ(chunks_->ContentsOf(ids[1]), chunks_->all()[3]);
  std::fill_n(session_->Home(chunks_->all().back()), sizeof(uint64_t), std::byte{0});
  EXPECT_EQ(chunks_->ContentsOf(ids[1]), kNoChunk);
  EXPECT_TRUE(absl::IsDataLoss(chunks_->HoldClaimed(ids)));
}

TEST_F(StateChunksTest, StateLargerThanTheArena_IsRefusedWithWhatItHas) {
  const std::vector<ChunkId> ids = Make(/*has_home=*/false, 5);
  const absl::Status status = chunks_->Place(ids, compute_->on_device());
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(chunks_->device_bytes(), 4 * kBytes);
}

}  // namespace
}  // namespace geminid::zero
