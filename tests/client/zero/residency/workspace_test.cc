#include "client/zero/residency/workspace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <random>
#include <span>
#include <thread>
#include <utility>

#include "tests/base/long_tests.h"

namespace geminid::zero {
namespace {

using ::testing::HasSubstr;

class ArenaWorkspaceTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kArenaBytes = 1 << 16;
  std::vector<std::byte> arena_ = std::vector<std::byte>(kArenaBytes);
  uint64_t granted_ = kArenaBytes;
  std::vector<uint64_t> grown_;
  ArenaMeter meter_;
  ArenaWorkspace workspace_{
      arena_.data(), kArenaBytes, &meter_, [this](uint64_t extent) {
        grown_.push_back(extent);
        if (extent > granted_) return absl::ResourceExhaustedError("not granted");
        workspace_.SetReserved(extent);
        return absl::OkStatus();
      }};
};

TEST_F(ArenaWorkspaceTest, BlocksFreedInReverseOrder_LeaveNoHoles) {
  auto first = workspace_.Allocate(100);
  auto second = workspace_.Allocate(200);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->data(), arena_.data() + kArenaBytes - 128);
  EXPECT_EQ(workspace_.extent_bytes(), 128u + 256u);
  *second = Workspace::Block();
  *first = Workspace::Block();
  EXPECT_EQ(workspace_.extent_bytes(), 0u);
  EXPECT_EQ(workspace_.TakePeakExtent(), 384u);
  EXPECT_EQ(workspace_.TakePeakExtent(), 0u);
  EXPECT_EQ(meter_.Read().peak_workspace_bytes, 384u);
  EXPECT_EQ(meter_.Read().workspace_bytes, 0u);
}

TEST_F(ArenaWorkspaceTest, HoleOfJustTheSize_IsUsed) {
  auto first = workspace_.Allocate(256);
  auto second = workspace_.Allocate(64);
  auto third = workspace_.Allocate(64);
  *second = Workspace::Block();
  auto fourth = workspace_.Allocate(64);
  ASSERT_TRUE(fourth.ok());
  EXPECT_EQ(fourth->data(), arena_.data() + kArenaBytes - 256 - 64);
  EXPECT_EQ(workspace_.extent_bytes(), 256u + 64u + 64u);
}

TEST_F(ArenaWorkspaceTest, Peak_StaysWhenLaterBlocksAreFewer) {
  auto first = workspace_.Allocate(256);
  *first = Workspace::Block();
  auto second = workspace_.Allocate(64);
  EXPECT_EQ(workspace_.TakePeakExtent(), 256u);
  EXPECT_EQ(workspace_.TakePeakExtent(), 64u);  // the blocks that are still in use
}

TEST_F(ArenaWorkspaceTest, HoleThatFits_IsUsedBeforeGrowing) {
  auto first = workspace_.Allocate(256);
  auto second = workspace_.Allocate(64);
  *first = Workspace::Block();
  auto third = workspace_.Allocate(128);
  ASSERT_TRUE(third.ok());
  EXPECT_EQ(third->data(), arena_.data() + kArenaBytes - 128);
  EXPECT_EQ(workspace_.extent_bytes(), 256u + 64u);
}

TEST_F(ArenaWorkspaceTest, GrowthRefused_IsTheCallersErrorAndTakesNothing) {
  granted_ = 1024;
  auto block = workspace_.Allocate(2048);
  EXPECT_EQ(block.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(workspace_.in_use_bytes(), 0u);
}

TEST_F(ArenaWorkspaceTest, ReservedBytes_AreNotAskedForAgain) {
  workspace_.SetReserved(4096);
  auto block = workspace_.Allocate(4096);
  ASSERT_TRUE(block.ok());
  EXPECT_TRUE(grown_.empty());
}

TEST_F(ArenaWorkspaceTest, LargerThanTheArena_SaysTheNumbers) {
  auto block = workspace_.Allocate(kArenaBytes + 1);
  EXPECT_EQ(block.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(block.status().message()), HasSubstr("64.0 KiB"));
  EXPECT_EQ(workspace_.Allocate(~uint64_t{0}).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(ArenaWorkspaceTest, WhilePaused_GrantsNothingBelowWhatIsInUse) {
  workspace_.SetReserved(4096);
  const auto held = workspace_.Allocate(1024);
  EXPECT_EQ(workspace_.Pause(), 1024u);
  granted_ = 1024;
  EXPECT_EQ(workspace_.Allocate(64).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(grown_, testing::ElementsAre(1024 + 64));
  workspace_.SetReserved(4096);
  EXPECT_TRUE(workspace_.Allocate(64).ok());
}

TEST_F(ArenaWorkspaceTest, WhatAFrameworkReports_CountsUntilThePeakIsTaken) {
  ASSERT_TRUE(workspace_.Report(2048).ok());
  EXPECT_EQ(workspace_.Pause(), 2048u);
  EXPECT_EQ(workspace_.TakePeakExtent(), 2048u);
  EXPECT_EQ(workspace_.Pause(), 0u);
}

TEST_F(ArenaWorkspaceTest, BlockThatOutlivesIt_GivesNothingBack) {
  Workspace::Block block;
  {
    ArenaWorkspace short_lived(arena_.data(), kArenaBytes, &meter_,
                               [](uint64_t) { return absl::OkStatus(); });
    short_lived.SetReserved(kArenaBytes);
    block = *short_lived.Allocate(64);
  }
  EXPECT_EQ(block.bytes(), 64u);
}

TEST_F(ArenaWorkspaceTest, BlockAssignedTo_GivesBackWhatItHad) {
  Workspace::Block first = *workspace_.Allocate(64);
  Workspace::Block second = *workspace_.Allocate(128);
  first = std::move(second);
  EXPECT_EQ(workspace_.in_use_bytes(), 128u);
  EXPECT_FALSE(second);
}

// The arena's owner puts a chunk below the blocks in use and expects it unchanged. Meanwhile
// another thread fills blocks.
TEST(ArenaWorkspaceOfTwoThreads, ChunkBelowWhatIsInUse_IsNeverWrittenOver) {
  constexpr uint64_t kArenaBytes = 16 << 10;
  constexpr uint64_t kLargestBlock = kArenaBytes / 4;
  constexpr std::byte kChunk{0x11}, kBlock{0xA5};
  const int rounds = LongTests() ? 200000 : 2000;
  std::vector<std::byte> arena(kArenaBytes);
  std::mutex owner;
  ArenaMeter meter;
  ArenaWorkspace* asked = nullptr;
  ArenaWorkspace workspace(arena.data(), kArenaBytes, &meter, [&](uint64_t extent) {
    const std::lock_guard lock(owner);
    asked->SetReserved(std::max(extent, asked->Pause()));
    return absl::OkStatus();
  });
  asked = &workspace;
  std::atomic<bool> ended = false;
  std::thread other([&] {
    std::mt19937 random(1);
    while (!ended) {
      const auto block = workspace.Allocate(1 + random() % kLargestBlock);
      std::fill_n(block->data(), block->bytes(), kBlock);
    }
  });
  int written_over = 0;
  for (int round = 0; round < rounds; ++round) {
    const std::lock_guard lock(owner);
    const auto size = static_cast<std::ptrdiff_t>(kArenaBytes - workspace.Pause());
    const std::span<std::byte> chunk(arena.data(), static_cast<size_t>(size));
    std::ranges::fill(chunk, kChunk);
    std::this_thread::yield();
    written_over += std::ranges::count(chunk, kChunk) == size ? 0 : 1;
    workspace.SetReserved(workspace.Pause() + kLargestBlock);
  }
  ended = true;
  other.join();
  EXPECT_EQ(written_over, 0) << "of " << rounds;
}

TEST_F(ArenaWorkspaceTest, RandomBlocks_NeverOverlap) {
  std::mt19937_64 random(3);
  std::vector<Workspace::Block> blocks;
  for (int round = 0; round < 3000; ++round) {
    if (!blocks.empty() && random() % 2 == 0) {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      blocks.pop_back();
      continue;
    }
    auto block = workspace_.Allocate(1 + random() % 3000);
    if (!block.ok()) continue;
    for (const Workspace::Block& other : blocks) {
      EXPECT_TRUE(block->data() + block->bytes() <= other.data() ||
                  other.data() + other.bytes() <= block->data());
    }
    blocks.push_back(*std::move(block));
  }
}

}  // namespace
}  // namespace geminid::zero
