#include "kernels/model/elementwise/transpose.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <type_traits>
#include <vector>

#include "kernels/runtime/common/bfloat16.h"

namespace geminid::kernels {
namespace {

// One element, one row, one column, whole tiles, and tiles with a rest on each side.
constexpr size_t kShapes[][2] = {{1, 1}, {1, 40}, {40, 1}, {64, 32}, {33, 70}};

template <typename From, typename To, typename Convert>
void ExpectTransposed(const Convert& convert) {
  for (const auto& [rows, cols] : kShapes) {
    std::vector<From> from(rows * cols);
    std::vector<To> to(rows * cols);
    for (size_t i = 0; i < from.size(); ++i) {
      const float value = 1.0F + static_cast<float>(i) / 1024;
      if constexpr (std::is_same_v<From, float>) {
        from[i] = value;
      } else {
        from[i] = BFloat16::FromFloat(value);
      }
    }
    ASSERT_EQ(TransposeMatrix(rows, cols, from.data(), to.data()), Status::kOk);
    for (size_t r = 0; r < rows; ++r) {
      for (size_t c = 0; c < cols; ++c) {
        ASSERT_EQ(to[c * rows + r], convert(from[r * cols + c])) << r << " " << c;
      }
    }
  }
}

TEST(TransposeMatrix, AnyShape_HasEachElementAtItsPlace) {
  ExpectTransposed<float, float>([](float value) { return value; });
  ExpectTransposed<BFloat16, BFloat16>([](BFloat16 value) { return value; });
  ExpectTransposed<float, BFloat16>([](float value) { return BFloat16::FromFloat(value); });
}

TEST(TransposeMatrix, ArgumentsThatDoNotFit_AreRefused) {
  std::vector<float> a(4), b(4);
  EXPECT_EQ(TransposeMatrix(2, 2, a.data(), a.data()), Status::kOverlap);
  EXPECT_EQ((TransposeMatrix<float, float>(2, 2, nullptr, b.data())), Status::kNullPointer);
  EXPECT_EQ(TransposeMatrix(SIZE_MAX, 2, a.data(), b.data()), Status::kSizeOverflow);
  EXPECT_EQ((TransposeMatrix<float, float>(0, 2, nullptr, nullptr)), Status::kOk);
}

}  // namespace
}  // namespace geminid::kernels
