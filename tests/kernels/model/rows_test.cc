#include "kernels/model/matmul/rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>

#include "tests/kernels/for_each_target.h"
#include "tests/kernels/model/model_kernels.h"

namespace geminid::kernels {
namespace {

// As in Matmul's test: fp32 sums in any order.
constexpr double kSumError = 0x1p-23;

template <typename In, typename Out>
struct Case {
  using InType = In;
  using OutType = Out;
};

template <typename C>
class Rows : public ::testing::Test {
 protected:
  using In = typename C::InType;
  using Out = typename C::OutType;

  // The first `m` rows of a product of nine rows.
  GuardedArray<Out> Product(MatmulShape shape, size_t m, ThreadPool* pool = nullptr) {
    std::mt19937 random(7);
    const auto a = RandomTensor<In>(random, 9 * (shape.k + 3), 1.0, 0.0, 0);
    const auto b = RandomTensor<In>(random, (shape.k + 5) * (shape.n + 5), 1.0, 0.0, 0);
    const auto bias = RandomTensor<Out>(random, shape.n, 1.0, 0.0, 0);
    auto c = RandomTensor<Out>(random, 9 * (shape.n + 2), 1.0, 0.0, 0);
    shape.m = m;
    shape.a_stride = shape.k + 3;
    shape.b_stride = (shape.transpose_b == Transpose::kYes ? shape.k : shape.n) + 5;
    shape.c_stride = shape.n + 2;
    before_ = ToDoubles(c);
    want_.assign(m * shape.n, 0);
    magnitude_.assign(m * shape.n, 0);
    for (size_t i = 0; i < m; ++i) {
      for (size_t j = 0; j < shape.n; ++j) {
        double sum = shape.accumulate ? before_[i * shape.c_stride + j] : 0;
        if (shape.bias) sum += ToDouble(bias.data()[j]);
        double magnitude = std::abs(sum);
        for (size_t k = 0; k < shape.k; ++k) {
          const size_t at = shape.transpose_b == Transpose::kYes ? j * shape.b_stride + k
                                                                 : k * shape.b_stride + j;
          const double term = ToDouble(a.data()[i * shape.a_stride + k]) * ToDouble(b.data()[at]);
          sum += term;
          magnitude += std::abs(term);
        }
        want_[i * shape.n + j] = sum;
        magnitude_[i * shape.n + j] = magnitude;
      }
    }
    const Status status = MatmulByRows<In, Out>(shape, a.data(), b.data(),
                                                shape.bias ? bias.data() : nullptr, c.data(), pool);
    EXPECT_EQ(status, Status::kOk) << StatusName(status);
    EXPECT_TRUE(c.GuardsIntact());
    return c;
  }

  Doubles before_, want_, magnitude_;
};

using Cases = ::testing::Types<Case<BFloat16, BFloat16>, Case<BFloat16, float>, Case<float, float>>;
TYPED_TEST_SUITE(Rows, Cases);

std::string Words(const MatmulShape& s) {
  return "n " + std::to_string(s.n) + ", k " + std::to_string(s.k) +
         (s.transpose_b == Transpose::kYes ? ", b transposed" : "") +
         (s.accumulate ? ", accumulates" : "") + (s.bias ? ", bias" : "");
}

std::vector<MatmulShape> Shapes() {
  std::vector<MatmulShape> shapes;
  for (const auto& [n, k] : {std::pair{1, 1}, {16, 16}, {37, 50}, {70, 129}, {200, 33}}) {
    for (unsigned flags = 0; flags < 8; ++flags) {
      shapes.push_back({.n = static_cast<size_t>(n),
                        .k = static_cast<size_t>(k),
                        .transpose_b = (flags & 1) != 0 ? Transpose::kYes : Transpose::kNo,
                        .accumulate = (flags & 2) != 0,
                        .bias = (flags & 4) != 0});
    }
  }
  return shapes;
}

TYPED_TEST(Rows, OfEveryVariantOnEveryTarget_MatchFloat64) {
  using Element = typename TypeParam::OutType;
  ForEachTarget([&] {
    for (const MatmulShape& shape : Shapes()) {
      SCOPED_TRACE(Words(shape));
      const auto c = this->Product(shape, 9);
      for (size_t i = 0; i < 9; ++i) {
        for (size_t j = 0; j < shape.n; ++j) {
          const double want = this->want_[i * shape.n + j];
          const double bound = 1.001 * RoundingOf<Element>() * std::abs(want) +
                               kSumError * std::sqrt(static_cast<double>(shape.k)) *
                                   this->magnitude_[i * shape.n + j];
          ASSERT_LE(std::abs(ToDouble(c.data()[i * (shape.n + 2) + j]) - want), bound);
        }
        for (size_t j = shape.n; j < shape.n + 2; ++j) {
          const size_t at = i * (shape.n + 2) + j;
          ASSERT_EQ(ToDouble(c.data()[at]), this->before_[at]) << "padding was written";
        }
      }
    }
  });
}

TYPED_TEST(Rows, AmongOthersOrAlone_HaveTheSameBits) {
  for (const MatmulShape& shape : Shapes()) {
    SCOPED_TRACE(Words(shape));
    const auto all = this->Product(shape, 9);
    for (size_t m = 1; m < 9; ++m) {
      const auto some = this->Product(shape, m);
      ASSERT_TRUE(SameBits(some.data(), all.data(), m * (shape.n + 2) - 2)) << m;
    }
  }
}

TYPED_TEST(Rows, OnAnyNumberOfThreads_HaveTheSameBits) {
  for (const MatmulShape& shape : Shapes()) {
    SCOPED_TRACE(Words(shape));
    const auto alone = this->Product(shape, 9);
    for (const size_t threads : {2, 3}) {
      std::unique_ptr<ThreadPool> pool;
      ASSERT_EQ(ThreadPool::Create({.threads = threads}, &pool), Status::kOk);
      const auto shared = this->Product(shape, 9, pool.get());
      ASSERT_TRUE(SameBits(shared.data(), alone.data(), 9 * (shape.n + 2)));
    }
  }
}

TEST(RowsRefused, WhatCannotBe_ChangesNothing) {
  float a[4] = {1, 2, 3, 4}, c[4] = {5, 5, 5, 5};
  const MatmulShape shape = {.m = 2, .n = 2, .k = 2};
  MatmulShape wrong = shape;
  wrong.transpose_a = Transpose::kYes;
  EXPECT_EQ((MatmulByRows<float, float>(wrong, a, a, nullptr, c)), Status::kInvalidShape);
  wrong = shape;
  wrong.k = 0;
  EXPECT_EQ((MatmulByRows<float, float>(wrong, a, a, nullptr, c)), Status::kInvalidShape);
  wrong = shape;
  wrong.b_stride = 1;
  EXPECT_EQ((MatmulByRows<float, float>(wrong, a, a, nullptr, c)), Status::kInvalidShape);
  EXPECT_EQ((MatmulByRows<float, float>(shape, a, a, nullptr, a)), Status::kOverlap);
  EXPECT_EQ((MatmulByRows<float, float>(shape, nullptr, a, nullptr, c)), Status::kNullPointer);
  EXPECT_EQ(c[0], 5);
}

}  // namespace
}  // namespace geminid::kernels
