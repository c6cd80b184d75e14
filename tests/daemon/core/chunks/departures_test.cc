#include "daemon/core/chunks/departures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

namespace geminid::core {
namespace {

using ::testing::ElementsAre;
using Place = Departures::Place;
using Visited = Departures::Visited;

constexpr uint32_t kNever = Departures::kNever;

std::vector<uint32_t> Order(const Departures& departures, uint32_t now, size_t limit = 100) {
  std::vector<uint32_t> order;
  departures.Walk(now, limit, [&order](const Place& place) {
    order.push_back(shm::Index(place.chunk));
    return Visited::kOn;
  });
  return order;
}

TEST(Departures, Walk_FarthestUseFirstThenLeastRecentlyTouched) {
  Departures departures;
  departures.Insert({5, 1, ChunkId{0}});
  departures.Insert({2, 4, ChunkId{1}});
  departures.Insert({2, 3, ChunkId{2}});
  departures.Insert({kNever, 9, ChunkId{3}});
  departures.Insert({3, 2, ChunkId{4}});
  // At moment 3, moment 2 is the farthest, and 3 is the present one.
  EXPECT_THAT(Order(departures, 3), ElementsAre(3, 2, 1, 0, 4));
  EXPECT_THAT(Order(departures, 0), ElementsAre(3, 0, 4, 2, 1));
  EXPECT_THAT(Order(departures, 0, 2), ElementsAre(3, 0));
  departures.Erase({kNever, 9, ChunkId{3}});
  EXPECT_THAT(Order(departures, 6), ElementsAre(0, 4, 2, 1));
}

// A walk updates places when it meets them, so it shows the true order.
TEST(Departures, Walk_WithPlacesBehindTheTime_ShowsTheTrueOrder) {
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
  Departures departures;
  std::vector<Place> places;
  for (size_t i = 0; i < kChunks; ++i) {
    places.push_back({next_use(i, 0), i, ChunkId{static_cast<uint32_t>(i)}});
    departures.Insert(places[i]);
  }
  for (int round = 0; round < 500; ++round) {
    const uint32_t now = random() % kMoments;
    std::vector<std::pair<int64_t, uint64_t>> seen;
    departures.Walk(now, 10 * kChunks, [&](const Place& place) {
      const size_t chunk = shm::Index(place.chunk);
      const uint32_t use = next_use(chunk, now);
      if (use != place.next_use) {
        departures.Erase(place);
        places[chunk].next_use = use;
        departures.Insert(places[chunk]);
        return Visited::kMoved;
      }
      const int64_t until = use == kNever ? 1000 : (use + kMoments - now) % kMoments;
      seen.emplace_back(-until, place.touched);
      return random() % 40 == 0 ? Visited::kStop : Visited::kOn;
    });
    EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end())) << round;
  }
}

}  // namespace
}  // namespace geminid::core
