#include "training/data/permutation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <vector>

namespace geminid::trainer {
namespace {

std::vector<uint64_t> OrderOf(uint64_t size, uint64_t key) {
  const Permutation permutation(size, key);
  std::vector<uint64_t> order(size);
  for (uint64_t i = 0; i < size; ++i) order[i] = permutation.At(i);
  return order;
}

// Squares, primes, powers of two and their neighbours: the last row is full, nearly empty or nearly
// full.
TEST(Permutation, OfAnySize_HasEachNumberOnce) {
  std::vector<uint64_t> sizes = {1023, 1024, 1025, 10'007, 65'536, 99'999};
  for (uint64_t size = 1; size <= 130; ++size) sizes.push_back(size);
  for (const uint64_t size : sizes) {
    for (const uint64_t key : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}}) {
      std::vector<uint64_t> order = OrderOf(size, key);
      std::ranges::sort(order);
      for (uint64_t i = 0; i < size; ++i) ASSERT_EQ(order[i], i) << "size " << size;
    }
  }
}

TEST(Permutation, OfAnotherKey_IsAnotherOrder) {
  std::set<std::vector<uint64_t>> orders;
  for (uint64_t key = 0; key < 100; ++key) orders.insert(OrderOf(50, key));
  EXPECT_EQ(orders.size(), 100);
  EXPECT_EQ(OrderOf(50, 7), OrderOf(50, 7));
}

// With 4000 keys, each of the 24 orders is expected 167 times, with a deviation of 13.
TEST(Permutation, OfFourNumbers_HasEachOrderAboutAsOften) {
  std::map<std::vector<uint64_t>, int> times;
  for (uint64_t key = 0; key < 4000; ++key) ++times[OrderOf(4, key * 977)];
  EXPECT_EQ(times.size(), 24u);
  for (const auto& [order, count] : times) EXPECT_NEAR(count, 4000 / 24.0, 70);
}

// The permutation destroys the original order: adjacent numbers differ by a third of the size on
// average, and a number's position does not correlate with its value.
TEST(Permutation, OfManyNumbers_LeavesNoOrderOfTheirs) {
  constexpr uint64_t kSize = 10'000;
  for (uint64_t key = 0; key < 5; ++key) {
    const std::vector<uint64_t> order = OrderOf(kSize, key);
    double apart = 0, product = 0;
    uint64_t fixed = 0;
    constexpr double kMean = (kSize - 1) / 2.0;
    for (uint64_t i = 0; i < kSize; ++i) {
      const auto value = static_cast<double>(order[i]);
      if (i > 0) apart += std::abs(value - static_cast<double>(order[i - 1]));
      product += (static_cast<double>(i) - kMean) * (value - kMean);
      fixed += order[i] == i ? 1 : 0;
    }
    const double correlation = product / (kSize * (1.0 * kSize * kSize - 1) / 12);
    EXPECT_NEAR(apart / (kSize - 1), kSize / 3.0, kSize / 100.0);
    EXPECT_LT(std::abs(correlation), 0.05);
    EXPECT_LT(fixed, 10u);
  }
}

TEST(Permutation, OfMoreNumbersThanMemoryHas_IsReachedAnywhere) {
  for (const uint64_t size : {uint64_t{1} << 40, (uint64_t{1} << 53) + 3, kPermutationSizeMax}) {
    const Permutation permutation(size, 3);
    std::set<uint64_t> values;
    for (const uint64_t index : {uint64_t{0}, uint64_t{1}, size / 2, size - 2, size - 1}) {
      const uint64_t value = permutation.At(index);
      EXPECT_LT(value, size);
      values.insert(value);
    }
    EXPECT_EQ(values.size(), 5u);
  }
}

}  // namespace
}  // namespace geminid::trainer
