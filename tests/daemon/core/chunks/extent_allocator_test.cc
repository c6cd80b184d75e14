#include "daemon/core/chunks/extent_allocator.h"

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "proto/shm/limits.h"

namespace geminid::core {
namespace {

constexpr ChunkId kOwner{7};

TEST(ExtentAllocator, Lowest_FillsHolesFromTheBottom) {
  ExtentAllocator arena(1000, 8);
  EXPECT_EQ(*arena.AllocateLowest(10, kOwner), 0u);
  EXPECT_EQ(*arena.AllocateLowest(8, kOwner), 16u);
  EXPECT_EQ(*arena.AllocateLowest(100, kOwner), 24u);
  ASSERT_TRUE(arena.Free(16).ok());
  EXPECT_EQ(*arena.AllocateLowest(9, kOwner), 128u);  // the hole at 16 is too small
  EXPECT_EQ(*arena.AllocateLowest(1, kOwner), 16u);
  EXPECT_EQ(arena.used_bytes(), 16u + 8 + 104 + 16);
}

TEST(ExtentAllocator, At_RefusesWhatOverlapsOrIsOutside) {
  ExtentAllocator arena(4096, 64);
  ASSERT_TRUE(arena.AllocateAt(1024, 100, kOwner).ok());
  EXPECT_EQ(arena.AllocateAt(1024, 1, kOwner).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(arena.AllocateAt(1088, 1, kOwner).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(arena.AllocateAt(960, 65, kOwner).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(arena.AllocateAt(960, 64, kOwner).ok());
  EXPECT_TRUE(arena.AllocateAt(1152, 64, kOwner).ok());
  EXPECT_EQ(arena.AllocateAt(1, 1, kOwner).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(arena.AllocateAt(0, 0, kOwner).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(arena.AllocateAt(4096, 1, kOwner).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(arena.AllocateAt(4032, 65, kOwner).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(arena.AllocateAt(0, ~uint64_t{0}, kOwner).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(arena.AllocateAt(~uint64_t{63}, 64, kOwner).code(), absl::StatusCode::kInvalidArgument);
}

TEST(ExtentAllocator, Free_CoalescesWithBothNeighbours) {
  ExtentAllocator arena(300, 1);
  for (const uint64_t offset : {0, 100, 200}) {
    ASSERT_TRUE(arena.AllocateAt(offset, 100, kOwner).ok());
  }
  ASSERT_TRUE(arena.Free(0).ok());
  ASSERT_TRUE(arena.Free(200).ok());
  EXPECT_EQ(arena.largest_hole_bytes(), 100u);
  EXPECT_DOUBLE_EQ(arena.Fragmentation(), 0.5);
  ASSERT_TRUE(arena.Free(100).ok());
  EXPECT_EQ(arena.largest_hole_bytes(), 300u);
  EXPECT_DOUBLE_EQ(arena.Fragmentation(), 0);
  EXPECT_EQ(arena.Free(100).code(), absl::StatusCode::kNotFound);
}

// The allocator stores data per extent and per hole, so an arena costs only what lies in it.
TEST(ExtentAllocator, WidestArena_BehavesAsASmallOne) {
  constexpr uint64_t kSmall = uint64_t{1} << 26;
  ExtentAllocator small(kSmall, shm::kSlotBytes);
  ExtentAllocator wide(shm::kMaxArenaBytes, shm::kSlotBytes);
  const uint64_t base = shm::kMaxArenaBytes - kSmall;
  for (uint64_t begin = 0; begin < base; begin += shm::kMaxChunkBytes) {
    const uint64_t bytes = std::min(shm::kMaxChunkBytes, base - begin);
    ASSERT_TRUE(wide.AllocateAt(begin, bytes, kOwner).ok());
  }
  std::mt19937 random(4);
  std::vector<uint64_t> offsets;
  for (int step = 0; step < 4000; ++step) {
    if (!offsets.empty() && random() % 2 == 0) {
      std::swap(offsets[random() % offsets.size()], offsets.back());
      ASSERT_TRUE(small.Free(offsets.back()).ok());
      ASSERT_TRUE(wide.Free(base + offsets.back()).ok());
      offsets.pop_back();
      continue;
    }
    const uint64_t bytes = 1 + random() % (uint64_t{1} << 22);
    const absl::StatusOr<uint64_t> offset = small.AllocateLowest(bytes, kOwner);
    const absl::StatusOr<uint64_t> same = wide.AllocateLowest(bytes, kOwner);
    ASSERT_EQ(offset.ok(), same.ok());
    if (!offset.ok()) continue;
    ASSERT_EQ(*same, base + *offset);
    offsets.push_back(*offset);
  }
  EXPECT_EQ(wide.free_bytes(), small.free_bytes());
  EXPECT_EQ(wide.largest_hole_bytes(), small.largest_hole_bytes());
}

TEST(ExtentAllocator, ReserveTop_TakesOnlyWhatIsEmpty) {
  ExtentAllocator arena(1024, 8);
  ASSERT_TRUE(arena.AllocateAt(512, 64, kOwner).ok());
  EXPECT_EQ(arena.ReserveTop(449).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(arena.limit_bytes(), 1024u);
  EXPECT_TRUE(arena.ReserveTop(441).ok());
  EXPECT_EQ(arena.limit_bytes(), 576u);
  EXPECT_EQ(arena.AllocateAt(576, 8, kOwner).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(arena.ReserveTop(128).ok());
  EXPECT_TRUE(arena.AllocateAt(888, 8, kOwner).ok());
  EXPECT_EQ(arena.ReserveTop(1025).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(arena.ReserveTop(~uint64_t{0}).code(), absl::StatusCode::kResourceExhausted);
}

TEST(ExtentAllocator, ReserveTop_WholeArenaAndBack) {
  ExtentAllocator arena(1024, 8);
  ASSERT_TRUE(arena.ReserveTop(1024).ok());
  EXPECT_EQ(arena.free_bytes(), 0u);
  EXPECT_EQ(arena.AllocateLowest(1, kOwner).status().code(), absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(arena.ReserveTop(0).ok());
  EXPECT_EQ(arena.largest_hole_bytes(), 1024u);
}

TEST(ExtentAllocator, InRange_FindsWhatTouches) {
  ExtentAllocator arena(1000, 2);
  for (const uint64_t offset : {0, 100, 200}) {
    ASSERT_TRUE(arena.AllocateAt(offset, 50, kOwner).ok());
  }
  EXPECT_EQ(arena.InRange(0, 1000).size(), 3u);
  EXPECT_EQ(arena.InRange(50, 100).size(), 0u);
  EXPECT_EQ(arena.InRange(49, 101).size(), 2u);
  EXPECT_EQ(arena.InRange(120, 130).size(), 1u);
  EXPECT_EQ(arena.InRange(120, 120).size(), 0u);
}

TEST(ExtentAllocator, Victims_TakesOnlyWhatLiesInTheHole) {
  ExtentAllocator arena(400, 1);
  for (uint64_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(arena.AllocateAt(i * 100, 100, ChunkId{static_cast<uint32_t>(i)}).ok());
  }
  const std::vector<Extent> all = arena.Extents();
  // The preference puts 0 first, but it does not help: 2 and 3 make the hole.
  ExtentAllocator::VictimSearch search(&arena, 200);
  EXPECT_FALSE(search.Add(all[0]));
  EXPECT_FALSE(search.Add(all[2]));
  ASSERT_TRUE(search.Add(all[3]));
  const std::vector<Extent> victims = search.Victims();
  ASSERT_EQ(victims.size(), 2u);
  EXPECT_EQ(victims[0].owner, ChunkId{2});
  EXPECT_EQ(victims[1].owner, ChunkId{3});
  ExtentAllocator::VictimSearch too_much(&arena, 401);
  for (const Extent& extent : all) EXPECT_FALSE(too_much.Add(extent));
}

// Adds extents in random order, with holes between them. The search ends as soon as a run of free
// bytes is long enough, and not before.
TEST(ExtentAllocator, VictimSearch_FindsTheFirstHoleThatIsLargeEnough) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    constexpr uint64_t kSize = 64;
    ExtentAllocator arena(kSize, 1);
    std::vector<bool> taken(kSize);
    for (uint64_t offset = 0; offset < kSize;) {
      const uint64_t bytes = std::min<uint64_t>(1 + random() % 4, kSize - offset);
      if (random() % 3 != 0) {
        ASSERT_TRUE(arena.AllocateAt(offset, bytes, ChunkId{0}).ok());
        std::fill_n(taken.begin() + static_cast<int64_t>(offset), bytes, true);
      }
      offset += bytes;
    }
    const auto longest_run = [&taken] {
      uint64_t longest = 0;
      uint64_t run = 0;
      for (const bool byte : taken) longest = std::max(longest, run = byte ? 0 : run + 1);
      return longest;
    };
    ASSERT_EQ(arena.largest_hole_bytes(), longest_run());
    const uint64_t wanted = longest_run() + 1 + random() % 20;
    std::vector<Extent> candidates = arena.Extents();
    std::shuffle(candidates.begin(), candidates.end(), random);
    ExtentAllocator::VictimSearch search(&arena, wanted);
    for (const Extent& extent : candidates) {
      std::fill_n(taken.begin() + static_cast<int64_t>(extent.offset), extent.bytes, false);
      const bool enough = search.Add(extent);
      ASSERT_EQ(enough, longest_run() >= wanted);
      if (!enough) continue;
      for (const Extent& victim : search.Victims()) ASSERT_TRUE(arena.Free(victim.offset).ok());
      EXPECT_TRUE(arena.AllocateLowest(wanted, ChunkId{1}).ok());
      break;
    }
  }
}

// A hole appears that is larger than the request. Extents above the bytes that are needed stay.
TEST(ExtentAllocator, Victims_AboveTheHoleThatIsNeeded_Stay) {
  ExtentAllocator arena(400, 1);
  for (uint64_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(arena.AllocateAt(i * 100, 100, ChunkId{static_cast<uint32_t>(i)}).ok());
  }
  const std::vector<Extent> all = arena.Extents();
  ExtentAllocator::VictimSearch search(&arena, 200);
  EXPECT_FALSE(search.Add(all[3]));
  EXPECT_FALSE(search.Add(all[1]));
  ASSERT_TRUE(search.Add(all[2]));
  const std::vector<Extent> victims = search.Victims();
  ASSERT_EQ(victims.size(), 2u);
  EXPECT_EQ(victims[0].owner, ChunkId{1});
  EXPECT_EQ(victims[1].owner, ChunkId{2});
}

TEST(ExtentAllocator, RoundUp_SaturatesInsteadOfOverflowing) {
  const ExtentAllocator arena(1 << 20, 4096);
  EXPECT_EQ(arena.RoundUp(1), 4096u);
  EXPECT_EQ(arena.RoundUp(~uint64_t{0}), ~uint64_t{4095});
}

// A model with the owner of each byte, and the limit.
class Model {
 public:
  explicit Model(size_t bytes) : owner_(bytes, -1) {}

  bool IsFree(size_t begin, size_t end, size_t limit) const {
    if (end > limit) return false;
    return std::all_of(owner_.begin() + begin, owner_.begin() + end,
                       [](int owner) { return owner < 0; });
  }
  void Set(size_t begin, size_t end, int owner) {
    std::fill(owner_.begin() + begin, owner_.begin() + end, owner);
  }
  size_t LargestHole(size_t limit) const {
    size_t largest = 0;
    size_t run = 0;
    for (size_t i = 0; i < limit; ++i) {
      run = owner_[i] < 0 ? run + 1 : 0;
      largest = std::max(largest, run);
    }
    return largest;
  }
  size_t Used() const {
    return std::count_if(owner_.begin(), owner_.end(), [](int owner) { return owner >= 0; });
  }

 private:
  std::vector<int> owner_;
};

class ExtentFuzz {
 public:
  explicit ExtentFuzz(uint32_t seed) : random_(seed) {}

  void Step() {
    switch (random_() % 5) {
      case 0:
        return AllocateLowest();
      case 1:
        return AllocateAt();
      case 2:
      case 3:
        return Free();
      case 4:
        return ReserveTop();
    }
  }
  void Check() const {
    ASSERT_EQ(arena_.used_bytes(), model_.Used());
    ASSERT_EQ(arena_.largest_hole_bytes(), model_.LargestHole(limit_));
    ASSERT_EQ(arena_.Extents().size(), extents_.size());
    ASSERT_EQ(arena_.limit_bytes(), limit_);
  }

 private:
  static constexpr size_t kBytes = 512;
  static constexpr size_t kAlignment = 4;
  static size_t Round(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

  void Take(size_t offset, size_t bytes) {
    model_.Set(offset, offset + Round(bytes), 1);
    extents_[offset] = Round(bytes);
  }
  void AllocateLowest() {
    const size_t bytes = 1 + random_() % 60;
    size_t expected = 0;
    while (expected < kBytes && !model_.IsFree(expected, expected + Round(bytes), limit_)) {
      expected += kAlignment;
    }
    const absl::StatusOr<uint64_t> offset = arena_.AllocateLowest(bytes, kOwner);
    ASSERT_EQ(offset.ok(), expected < kBytes);
    if (!offset.ok()) return;
    ASSERT_EQ(*offset, expected);
    Take(*offset, bytes);
  }
  void AllocateAt() {
    const size_t offset = random_() % (kBytes / kAlignment) * kAlignment;
    const size_t bytes = 1 + random_() % 60;
    const bool free = model_.IsFree(offset, offset + Round(bytes), limit_);
    ASSERT_EQ(arena_.AllocateAt(offset, bytes, kOwner).ok(), free);
    if (free) Take(offset, bytes);
  }
  void Free() {
    if (extents_.empty()) return;
    const auto victim = std::next(extents_.begin(), random_() % extents_.size());
    ASSERT_TRUE(arena_.Free(victim->first).ok());
    model_.Set(victim->first, victim->first + victim->second, -1);
    extents_.erase(victim);
  }
  void ReserveTop() {
    const size_t bytes = random_() % (kBytes / 2);
    const size_t limit = kBytes - Round(bytes);
    const bool free = model_.IsFree(limit, kBytes, kBytes);
    ASSERT_EQ(arena_.ReserveTop(bytes).ok(), free);
    if (free) limit_ = limit;
  }

  std::mt19937 random_;
  ExtentAllocator arena_{kBytes, kAlignment};
  Model model_{kBytes};
  std::map<size_t, size_t> extents_;
  size_t limit_ = kBytes;
};

TEST(ExtentAllocator, RandomOperations_EqualAByteMap) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    ExtentFuzz fuzz(seed);
    for (int step = 0; step < 2000; ++step) {
      fuzz.Step();
      fuzz.Check();
      if (testing::Test::HasFatalFailure()) FAIL() << "seed " << seed << " step " << step;
    }
  }
}

}  // namespace
}  // namespace geminid::core
