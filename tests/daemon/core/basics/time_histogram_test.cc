#include "daemon/core/basics/time_histogram.h"

#include <gtest/gtest.h>

#include <numeric>

namespace geminid::core {
namespace {

TEST(TimeHistogram, Bounds_BelongToTheirRangeAndGrow) {
  for (size_t i = 0; i < TimeHistogram::kBoundsNanoseconds.size(); ++i) {
    const int64_t bound = TimeHistogram::kBoundsNanoseconds[i];
    if (i > 0) {
      EXPECT_GT(bound, TimeHistogram::kBoundsNanoseconds[i - 1]);
    }
    TimeHistogram histogram;
    histogram.Add(Duration::Nanoseconds(bound));
    histogram.Add(Duration::Nanoseconds(bound + 1));
    EXPECT_EQ(histogram.counts()[i], 1u);
    EXPECT_EQ(histogram.counts()[i + 1], 1u);
  }
}

TEST(TimeHistogram, Sum_IsOfAllThatWasAdded) {
  TimeHistogram histogram;
  for (const int64_t seconds : {-5, 0, 2, 1000}) histogram.Add(Duration::Seconds(seconds));
  EXPECT_EQ(histogram.sum(), Duration::Seconds(1002)) << "no time is negative";
  EXPECT_EQ(std::accumulate(histogram.counts().begin(), histogram.counts().end(), uint64_t{0}), 4u);
  EXPECT_EQ(histogram.counts().front(), 2u);
  EXPECT_EQ(histogram.counts().back(), 1u);
}

}  // namespace
}  // namespace geminid::core
