#include "client/zero/workspace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

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
        return extent <= granted_ ? absl::OkStatus() : absl::ResourceExhaustedError("not granted");
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
  EXPECT_EQ(workspace_.TakePeakExtent(), 64u);  // what is still there
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
