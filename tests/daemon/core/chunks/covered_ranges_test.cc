#include "daemon/core/chunks/covered_ranges.h"

#include <bitset>
#include <random>

#include "gtest/gtest.h"

namespace geminid::core {
namespace {

TEST(CoveredRanges, PiecesInOrder_BecomeOneRange) {
  CoveredRanges ranges;
  for (uint64_t i = 0; i < 10; ++i) ranges.Add(i * 16, i * 16 + 16);
  EXPECT_EQ(ranges.ranges(), 1u);
  EXPECT_TRUE(ranges.Covers(0, 160));
  EXPECT_FALSE(ranges.Covers(0, 161));
}

TEST(CoveredRanges, RandomPieces_EqualABitmap) {
  constexpr size_t kBytes = 256;
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    CoveredRanges ranges;
    std::bitset<kBytes> model;
    for (int piece = 0; piece < 30; ++piece) {
      const size_t begin = random() % kBytes;
      const size_t end = begin + random() % (kBytes - begin + 1);
      ranges.Add(begin, end);
      for (size_t i = begin; i < end; ++i) model.set(i);
      const size_t from = random() % kBytes;
      const size_t to = from + random() % (kBytes - from + 1);
      bool covered = true;
      for (size_t i = from; i < to; ++i) covered = covered && model.test(i);
      ASSERT_EQ(ranges.Covers(from, to), covered);
    }
  }
}

TEST(CoveredRanges, TooManyRanges_ForgetsButStaysRight) {
  CoveredRanges ranges;
  for (uint64_t i = 0; i < 2 * CoveredRanges::kMaxRanges; ++i) ranges.Add(2 * i, 2 * i + 1);
  EXPECT_EQ(ranges.ranges(), CoveredRanges::kMaxRanges);
  EXPECT_FALSE(ranges.Covers(2 * CoveredRanges::kMaxRanges, 2 * CoveredRanges::kMaxRanges + 1));
  // A range that touches others still joins them.
  ranges.Add(0, 2 * CoveredRanges::kMaxRanges);
  EXPECT_EQ(ranges.ranges(), 1u);
  EXPECT_TRUE(ranges.Covers(0, 2 * CoveredRanges::kMaxRanges));
}

}  // namespace
}  // namespace geminid::core
