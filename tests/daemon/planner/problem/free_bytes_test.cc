#include "daemon/planner/problem/free_bytes.h"

#include <algorithm>
#include <cstddef>
#include <random>

#include "gtest/gtest.h"
#include "tests/daemon/planner/traces.h"

namespace geminid::planner {
namespace {

TEST(FreeBytes, RandomUpdatesOverTheBoundary_EqualAPlainArray) {
  std::mt19937_64 random(5);
  for (std::int64_t n = 1; n <= 17; ++n) {
    std::vector<std::int64_t> plain(static_cast<std::size_t>(n), 50);
    FreeBytes room(plain);
    for (int i = 0; i < 400; ++i) {
      const auto first = static_cast<std::int64_t>(Draw(random, 0, 2 * n)) - n;
      const auto length = static_cast<std::int64_t>(Draw(random, 0, n));
      const std::int64_t last = std::min(first + length, 2 * n) - 1;
      const auto bytes = static_cast<std::int64_t>(Draw(random, 0, 40)) - 20;
      room.Add(first, last, bytes);
      for (std::int64_t t = first; t <= last; ++t) {
        plain[static_cast<std::size_t>((t + n) % n)] += bytes;
      }
      const auto limit = static_cast<std::int64_t>(Draw(random, 0, 100));
      std::int64_t expected = first - 1;
      for (std::int64_t t = first; t <= last; ++t) {
        if (plain[static_cast<std::size_t>((t + n) % n)] < limit) expected = t;
      }
      ASSERT_EQ(room.LastBelow(first, last, limit), expected);
      ASSERT_EQ(room.Has(first, last, limit), expected < first);
    }
  }
}

TEST(FreeBytes, EmptyRange_HasAnything) {
  FreeBytes room({0, 0, 0});
  EXPECT_TRUE(room.Has(2, 1, 1000));
  room.Add(2, 1, -5);
  EXPECT_TRUE(room.Has(0, 2, 0));
}

}  // namespace
}  // namespace geminid::planner
