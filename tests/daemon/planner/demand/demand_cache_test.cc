#include "daemon/planner/demand/demand_cache.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/planner/demand/cache_candidate.h"
#include "gtest/gtest.h"
#include "tests/daemon/planner/traces.h"

namespace geminid::planner {
namespace {

using EvictionRule = CacheRule::EvictionRule;
using Memory = CacheRule::Memory;

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

PlannerOptions WithoutDrains() {
  PlannerOptions options = TestOptions();
  options.drain_moments = 0;
  return options;
}

std::size_t NumLoads(const DemandCache& cache) {
  std::size_t loads = 0;
  for (const CacheMoment& moment : cache.moments()) loads += moment.loaded.size();
  return loads;
}

// A chain of L equal chunks with room for C, where the last backward use of each chunk makes its
// gradient. The last C chunks of the forward pass are still present, so 2 L - C chunks are loaded,
// whatever the cache evicts.
TEST(DemandCache, ChainWithConstantRoom_LoadsTwiceTheLengthLessTheRoom) {
  const Trace trace = ChainTrace(12, 8, 5, 5, /*trained=*/true);
  const absl::StatusOr<Problem> problem = BuildProblem(trace, WithoutDrains());
  ASSERT_TRUE(problem.ok()) << problem.status();
  for (const EvictionRule eviction : {EvictionRule::kLeastRecent, EvictionRule::kLastNeeded}) {
    for (const Memory memory : {Memory::kArena, Memory::kIdeal}) {
      const CacheRule rule{.eviction = eviction, .memory = memory};
      DemandCache cache(trace, *problem, rule);
      ASSERT_TRUE(cache.RunIteration({}, kNoLimit));
      EXPECT_EQ(NumLoads(cache), 2u * 12 - 5);
      EXPECT_TRUE(cache.end().empty());  // the optimizer changes everything
    }
  }
}

TEST(DemandCache, PinnedItems_StayAndTheOthersLeaveAfterEachUse) {
  const Trace trace = ChainTrace(12, 8, 5, 5, /*trained=*/false);
  PlannerOptions options = WithoutDrains();
  options.weights_change_between_iterations = false;
  const absl::StatusOr<Problem> problem = BuildProblem(trace, options);
  ASSERT_TRUE(problem.ok()) << problem.status();
  const CacheRule rule{.pinned = PinAllThatFit(*problem), .drops_after_use = true};
  DemandCache cache(trace, *problem, rule);
  ASSERT_TRUE(cache.RunIteration({}, kNoLimit));
  const DemandCache::State end = cache.end();
  EXPECT_EQ(end.size(), 4u);  // the fifth place is for the chunk in use
  ASSERT_TRUE(cache.RunIteration(end, kNoLimit));
  EXPECT_EQ(NumLoads(cache), 2u * 8 - 1);  // the chunk at the turn is used twice in a row
  EXPECT_EQ(cache.end(), end);
}

TEST(DemandCache, WorkLimitReached_GivesUp) {
  const Trace trace = ChainTrace(12, 8, 5, 5, /*trained=*/true);
  const absl::StatusOr<Problem> problem = BuildProblem(trace, WithoutDrains());
  ASSERT_TRUE(problem.ok()) << problem.status();
  const CacheRule rule;
  EXPECT_FALSE(DemandCache(trace, *problem, rule).RunIteration({}, 3));
}

// The arena is one byte too small for the chunks of a moment beside the pinned chunks.
TEST(DemandCache, PinsThatLeaveTooLittle_AreRefused) {
  const Trace trace = ChainTrace(4, 8, 3, 3, /*trained=*/false);
  const absl::StatusOr<Problem> problem = BuildProblem(trace, WithoutDrains());
  ASSERT_TRUE(problem.ok()) << problem.status();
  const CacheRule rule{.pinned = {true, true, true, false}};
  EXPECT_FALSE(DemandCache(trace, *problem, rule).RunIteration({}, kNoLimit));
}

// Replays the events that the cache reports of an iteration that began empty.
void ExpectEachUseFindsItsChunk(const Trace& trace, const Problem& problem,
                                const DemandCache& cache) {
  std::set<ChunkIndex> there;
  const auto chunk_of = [&problem](std::uint32_t item) { return problem.items[item].chunk; };
  for (std::size_t t = 0; t < trace.moments.size(); ++t) {
    const CacheMoment& moment = cache.moments()[t];
    for (const std::uint32_t item : moment.evicted) EXPECT_EQ(there.erase(chunk_of(item)), 1u) << t;
    for (const auto& [item, offset] : moment.loaded) {
      EXPECT_TRUE(there.insert(chunk_of(item)).second) << t;
    }
    for (const Use& use : trace.moments[t].uses) {
      EXPECT_TRUE(there.contains(use.chunk)) << "chunk " << use.chunk << " at moment " << t;
      if (use.invalidates) there.erase(use.chunk);
    }
    for (const std::uint32_t item : moment.dropped) there.erase(chunk_of(item));
  }
}

TEST(DemandCache, AnyRandomTrace_HasEachChunkWhereItIsUsed) {
  std::mt19937_64 random(72);
  for (int i = 0; i < 200; ++i) {
    const Trace trace = RandomTrace(
        {.num_chunks = 8, .num_moments = 16, .max_size_bytes = 5, .max_uses_per_moment = 4},
        random);
    const absl::StatusOr<Problem> problem = BuildProblem(trace, WithoutDrains());
    ASSERT_TRUE(problem.ok()) << problem.status();
    for (const EvictionRule eviction :
         {EvictionRule::kLeastRecent, EvictionRule::kLastNeeded, EvictionRule::kCheapestWindow,
          EvictionRule::kCheapestReload}) {
      const CacheRule rule{.eviction = eviction};
      DemandCache cache(trace, *problem, rule);
      if (!cache.RunIteration({}, kNoLimit)) continue;
      ExpectEachUseFindsItsChunk(trace, *problem, cache);
      if (HasFailure()) FAIL() << "instance " << i;
    }
  }
}

TEST(RunOnDemand, AnyRandomTrace_RetainsWhatItDoesNotLoad) {
  std::mt19937_64 random(71);
  for (int i = 0; i < 100; ++i) {
    const Trace trace = RandomTrace(
        {.num_chunks = 12, .num_moments = 24, .max_size_bytes = 9, .freeze = true}, random);
    const absl::StatusOr<Problem> problem = BuildProblem(trace, WithoutDrains());
    ASSERT_TRUE(problem.ok()) << problem.status();
    for (const EvictionRule eviction :
         {EvictionRule::kLeastRecent, EvictionRule::kLastNeeded, EvictionRule::kCheapestWindow,
          EvictionRule::kCheapestReload}) {
      std::int64_t work = 0;
      const CacheRule rule{.eviction = eviction};
      const auto candidate = RunOnDemand(trace, *problem, rule, kNoLimit, work);
      ASSERT_TRUE(candidate.has_value());
      EXPECT_GT(work, 0);
      EXPECT_EQ(LoadBytes(*problem, candidate->retained), LoadBytes(*problem, candidate->drafts));
    }
  }
}

}  // namespace
}  // namespace geminid::planner
