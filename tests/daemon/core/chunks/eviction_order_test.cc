#include "daemon/core/chunks/eviction_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

namespace geminid::core {
namespace {

using ::testing::ElementsAre;
using Entry = EvictionOrder::Entry;
using WalkStep = EvictionOrder::WalkStep;

constexpr uint32_t kNever = EvictionOrder::kNever;

std::vector<uint32_t> Order(const EvictionOrder& eviction_order, uint32_t now, size_t limit = 100) {
  std::vector<uint32_t> order;
  eviction_order.Walk(now, limit, [&order](const Entry& entry) {
    order.push_back(shm::Index(entry.chunk));
    return WalkStep::kOn;
  });
  return order;
}

TEST(EvictionOrder, Walk_FarthestUseFirstThenLeastRecentlyTouched) {
  EvictionOrder eviction_order;
  eviction_order.Insert({5, 1, ChunkId{0}});
  eviction_order.Insert({2, 4, ChunkId{1}});
  eviction_order.Insert({2, 3, ChunkId{2}});
  eviction_order.Insert({kNever, 9, ChunkId{3}});
  eviction_order.Insert({3, 2, ChunkId{4}});
  // At moment 3, moment 2 is the farthest, and 3 is the present one.
  EXPECT_THAT(Order(eviction_order, 3), ElementsAre(3, 2, 1, 0, 4));
  EXPECT_THAT(Order(eviction_order, 0), ElementsAre(3, 0, 4, 2, 1));
  EXPECT_THAT(Order(eviction_order, 0, 2), ElementsAre(3, 0));
  eviction_order.Erase({kNever, 9, ChunkId{3}});
  EXPECT_THAT(Order(eviction_order, 6), ElementsAre(0, 4, 2, 1));
}

// A walk updates entries when it meets them, so it shows the true order.
TEST(EvictionOrder, Walk_WithPlacesBehindTheTime_ShowsTheTrueOrder) {
  constexpr uint32_t kMoments = 20;
  constexpr size_t kChunks = 30;
  std::mt19937 random(11);
  std::vector<std::vector<uint32_t>> uses(kChunks);
  for (auto& of_chunk : uses) {
    for (uint32_t moment = 0; moment < kMoments; ++moment) {
      if (random() % 5 == 0) of_chunk.push_back(moment);
    }
  }
  const auto next_use = [&uses](size_t chunk, uint32_t now) {
    for (const uint32_t use : uses[chunk]) {
      if (use >= now) return use;
    }
    return uses[chunk].empty() ? kNever : uses[chunk].front();
  };
  EvictionOrder eviction_order;
  std::vector<Entry> entries;
  for (size_t i = 0; i < kChunks; ++i) {
    entries.push_back({next_use(i, 0), i, ChunkId{static_cast<uint32_t>(i)}});
    eviction_order.Insert(entries[i]);
  }
  for (int round = 0; round < 500; ++round) {
    const uint32_t now = random() % kMoments;
    std::vector<std::pair<int64_t, uint64_t>> seen;
    eviction_order.Walk(now, 10 * kChunks, [&](const Entry& entry) {
      const size_t chunk = shm::Index(entry.chunk);
      const uint32_t use = next_use(chunk, now);
      if (use != entry.next_use) {
        eviction_order.Erase(entry);
        entries[chunk].next_use = use;
        eviction_order.Insert(entries[chunk]);
        return WalkStep::kMoved;
      }
      const int64_t until = use == kNever ? 1000 : (use + kMoments - now) % kMoments;
      seen.emplace_back(-until, entry.touched);
      return random() % 40 == 0 ? WalkStep::kStop : WalkStep::kOn;
    });
    EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end())) << round;
  }
}

}  // namespace
}  // namespace geminid::core
