#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "kernels/numeric/norm/norm.h"
#include "kernels/optimizers/adamw/adamw.h"
#include "kernels/runtime/parallel/granules.h"
#include "kernels/runtime/parallel/tasks.h"
#include "kernels/runtime/parallel/thread_pool.h"
#include "tests/kernels/test_arrays.h"

namespace geminid::kernels {
namespace {

std::unique_ptr<ThreadPool> MakePool(size_t threads, bool pin = false) {
  std::unique_ptr<ThreadPool> pool;
  EXPECT_EQ(ThreadPool::Create({.threads = threads, .pin = pin}, &pool), Status::kOk);
  return pool;
}

TEST(Granules, AnyCountAndParts_CoverEveryElementOnceInOrder) {
  for (size_t count = 0; count < 60; ++count) {
    for (size_t granule = 1; granule < 12; ++granule) {
      for (size_t parts = 1; parts < 8; ++parts) {
        size_t at = 0, most = 0, least = SIZE_MAX;
        for (size_t part = 0; part < parts; ++part) {
          const GranuleRun run = RunOfPart(GranuleCount(count, granule), part, parts);
          most = std::max(most, run.last - run.first);
          least = std::min(least, run.last - run.first);
          for (size_t i = run.first; i < run.last; ++i) {
            const Granule g = GranuleAt(i, count, granule);
            ASSERT_EQ(g.begin, at);
            ASSERT_EQ(g.begin, i * granule);
            ASSERT_GT(g.end, g.begin);
            at = g.end;
          }
        }
        ASSERT_EQ(at, count);
        ASSERT_LE(most - least, 1u);
      }
    }
  }
}

TEST(Granules, LargestCount_DoesNotOverflow) {
  const size_t granules = GranuleCount(SIZE_MAX, 4096);
  EXPECT_EQ(granules, SIZE_MAX / 4096 + 1);
  EXPECT_EQ(GranuleAt(granules - 1, SIZE_MAX, 4096).end, SIZE_MAX);
}

TEST(ThreadPool, ManyRuns_EveryGranuleOnce) {
  const std::unique_ptr<ThreadPool> pool = MakePool(4);
  for (size_t count = 0; count < 300; ++count) {
    std::vector<int> visits(count, 0);  // each element belongs to one granule, so to one thread
    pool->Run(count, 7, [&](const Granule& g) {
      for (size_t i = g.begin; i < g.end; ++i) ++visits[i];
    });
    ASSERT_EQ(visits, std::vector<int>(count, 1));
  }
}

TEST(ThreadPool, SameArray_SamePartOnTheSameThreadEveryTime) {
  const std::unique_ptr<ThreadPool> pool = MakePool(3);
  std::vector<std::thread::id> first(10), again(10);
  pool->Run(100, 10, [&](const Granule& g) { first[g.index] = std::this_thread::get_id(); });
  pool->Run(100, 10, [&](const Granule& g) { again[g.index] = std::this_thread::get_id(); });
  EXPECT_EQ(first, again);
  EXPECT_EQ(first[0], std::this_thread::get_id());
  EXPECT_EQ(std::set<std::thread::id>(first.begin(), first.end()).size(), 3u);
}

TEST(ThreadPool, Pinned_EachWorkerHasOneProcessor) {
  const std::unique_ptr<ThreadPool> pool = MakePool(3, /*pin=*/true);
  std::vector<int> processors(3, 0);
  pool->Run(3, 1, [&](const Granule& g) {
    cpu_set_t mine;
    CPU_ZERO(&mine);
    if (sched_getaffinity(0, sizeof(mine), &mine) == 0) processors[g.index] = CPU_COUNT(&mine);
  });
  EXPECT_EQ(processors[1], 1);
  EXPECT_EQ(processors[2], 1);
}

TEST(ThreadPool, ThatSpins_DoesTheSame) {
  std::unique_ptr<ThreadPool> pool;
  ASSERT_EQ(ThreadPool::Create({.threads = 3, .spin = std::chrono::microseconds(20)}, &pool),
            Status::kOk);
  for (size_t count = 0; count < 300; ++count) {
    std::vector<int> visits(count, 0);
    pool->Run(count, 7, [&](const Granule& g) {
      for (size_t i = g.begin; i < g.end; ++i) ++visits[i];
    });
    ASSERT_EQ(visits, std::vector<int>(count, 1));
  }
}

TEST(RunTasks, OnAnyPool_DoesEachTaskOnceAndTellsThreadsApart) {
  for (const size_t threads : {1, 2, 5}) {
    const std::unique_ptr<ThreadPool> pool = MakePool(threads);
    for (const size_t count : {0, 1, 3, 50}) {
      std::vector<int> done(count, 0);
      std::vector<std::atomic<int>> busy(threads);
      std::atomic<int> clashes = 0;
      const auto task = [&](size_t index, size_t thread) {
        clashes += busy[thread].exchange(1);
        ++done[index];
        busy[thread] = 0;
        return Status::kOk;
      };
      EXPECT_EQ(RunTasks(pool.get(), count, task), Status::kOk);
      EXPECT_EQ(done, std::vector<int>(count, 1));
      EXPECT_EQ(clashes, 0);
    }
  }
  int alone = 0;
  EXPECT_EQ(RunTasks(nullptr, 4,
                     [&](size_t, size_t thread) {
                       alone += thread == 0 ? 1 : 0;
                       return Status::kOk;
                     }),
            Status::kOk);
  EXPECT_EQ(alone, 4);
}

TEST(RunTasks, AfterAnError_BeginsNoMore) {
  // The other threads work for many seconds, in case the thread with the error waits that long for
  // a processor.
  constexpr size_t kTasks = size_t{1} << 32;
  for (const size_t threads : {1, 3}) {
    const std::unique_ptr<ThreadPool> pool = MakePool(threads);
    std::atomic<size_t> begun = 0;
    EXPECT_EQ(RunTasks(pool.get(), kTasks,
                       [&](size_t index, size_t) {
                         ++begun;
                         return index == 0 ? Status::kUnsupported : Status::kOk;
                       }),
              Status::kUnsupported);
    EXPECT_LT(begun, kTasks);
  }
}

TEST(RunTasks, OfWhichAllFail_BeginsOneOnEachThreadAtMost) {
  for (const size_t threads : {1, 3}) {
    const std::unique_ptr<ThreadPool> pool = MakePool(threads);
    std::vector<int> begun(threads, 0);
    EXPECT_EQ(RunTasks(pool.get(), 1000,
                       [&](size_t, size_t thread) {
                         ++begun[thread];
                         return Status::kUnsupported;
                       }),
              Status::kUnsupported);
    for (const int tasks : begun) EXPECT_LE(tasks, 1);
    EXPECT_GE(*std::max_element(begun.begin(), begun.end()), 1);
  }
}

TEST(ThreadPool, NoThreads_IsRefused) {
  std::unique_ptr<ThreadPool> pool;
  EXPECT_EQ(ThreadPool::Create({.threads = 0}, &pool), Status::kInvalidParameter);
  EXPECT_EQ(ThreadPool::Create({}, nullptr), Status::kNullPointer);
  EXPECT_EQ(pool, nullptr);
}

// An update and a norm in parts, as the trainer runs them on every chunk.
TEST(ThreadPool, AnyNumberOfThreads_SameBits) {
  constexpr size_t kCount = 50'003, kGranule = 2 * kNormBlock;
  std::mt19937 random(21);
  std::vector<float> weight(kCount), gradient(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    weight[i] = RandomValue(random, 0.02);
    gradient[i] = RandomValue(random, 1.0);
  }
  std::vector<float> expected_weight;
  uint64_t expected_sum = 0;
  for (const size_t threads : {1, 2, 3, 5, 8}) {
    const std::unique_ptr<ThreadPool> pool = MakePool(threads);
    std::vector<float> w = weight, m(kCount), v(kCount);
    std::vector<SquareSum> partial(GranuleCount(kCount, kGranule));
    std::atomic<int> refused = 0;
    pool->Run(kCount, kGranule, [&](const Granule& g) {
      const size_t n = g.end - g.begin;
      const MasterState state = {&w[g.begin], &m[g.begin], &v[g.begin]};
      if (AdamWMasterInPlace({}, state, &gradient[g.begin], n) != Status::kOk) ++refused;
      if (AddSquares(&gradient[g.begin], n, &partial[g.index]) != Status::kOk) ++refused;
    });
    ASSERT_EQ(refused, 0);
    double sum = 0;
    for (const SquareSum& p : partial) sum += p.sum;
    if (threads == 1) {
      expected_weight = w;
      expected_sum = std::bit_cast<uint64_t>(sum);
    }
    EXPECT_TRUE(SameBits(w.data(), expected_weight.data(), kCount)) << threads;
    EXPECT_EQ(std::bit_cast<uint64_t>(sum), expected_sum) << threads;
  }
}

}  // namespace
}  // namespace geminid::kernels
