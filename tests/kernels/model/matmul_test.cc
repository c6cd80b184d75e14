#include "kernels/model/matmul/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <iterator>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/model/matmul/linear.h"
#include "kernels/model/matmul/packing.h"
#include "kernels/model/matmul/plan.h"
#include "kernels/model/matmul/tiles.h"
#include "kernels/model/matmul/transpose.h"
#include "tests/kernels/model/model_kernels.h"

namespace geminid::kernels {
namespace {

// fp32 sums of products. In any order the error is below k 2^-24 of the sum of magnitudes, and
// pairs of bf16 products round once more. Observed errors are far below this.
constexpr double kSumError = 0x1p-23;

template <typename In, typename Out>
struct Case {
  using InType = In;
  using OutType = Out;
};

template <typename C>
class Matrices : public ::testing::Test {};
using Cases = ::testing::Types<Case<BFloat16, BFloat16>, Case<BFloat16, float>, Case<float, float>>;
TYPED_TEST_SUITE(Matrices, Cases);

size_t RowsA(const MatmulShape& s) { return s.transpose_a == Transpose::kYes ? s.k : s.m; }
size_t ColsA(const MatmulShape& s) { return s.transpose_a == Transpose::kYes ? s.m : s.k; }
size_t RowsB(const MatmulShape& s) { return s.transpose_b == Transpose::kYes ? s.n : s.k; }
size_t ColsB(const MatmulShape& s) { return s.transpose_b == Transpose::kYes ? s.k : s.n; }

MatmulShape WithStrides(MatmulShape s, size_t extra) {
  s.a_stride = ColsA(s) + extra;
  s.b_stride = ColsB(s) + extra;
  s.c_stride = s.n + extra;
  return s;
}

template <typename In, typename Out>
struct Problem {
  Problem(const MatmulShape& with_strides, unsigned seed, size_t shift = 0)
      : shape(with_strides),
        random(seed),
        a(RandomTensor<In>(random, RowsA(shape) * shape.a_stride, 1.0, 0.0, shift)),
        b(RandomTensor<In>(random, RowsB(shape) * shape.b_stride, 1.0, 0.0, shift)),
        c(RandomTensor<Out>(random, shape.m * shape.c_stride, 1.0, 0.0, shift)),
        bias(RandomTensor<Out>(random, shape.n, 1.0, 0.0, shift)) {}

  double A(size_t i, size_t k) const {
    const bool t = shape.transpose_a == Transpose::kYes;
    return ToDouble(a.data()[t ? k * shape.a_stride + i : i * shape.a_stride + k]);
  }
  double B(size_t k, size_t j) const {
    const bool t = shape.transpose_b == Transpose::kYes;
    return ToDouble(b.data()[t ? j * shape.b_stride + k : k * shape.b_stride + j]);
  }

  // Runs the product into `c` and compares it with float64.
  void Check(MatmulPath path) {
    const Doubles before = ToDoubles(c);
    Run(path);
    EXPECT_TRUE(c.GuardsIntact());
    for (size_t i = 0; i < shape.m; ++i) {
      for (size_t j = 0; j < shape.c_stride; ++j) {
        const size_t at = i * shape.c_stride + j;
        if (j >= shape.n) {
          ASSERT_EQ(ToDouble(c[at]), before[at]) << "padding was written";
          continue;
        }
        double want = shape.accumulate ? before[at] : 0.0;
        if (shape.bias) want += ToDouble(bias.data()[j]);
        double magnitude = std::abs(want);
        for (size_t k = 0; k < shape.k; ++k) {
          want += A(i, k) * B(k, j);
          magnitude += std::abs(A(i, k) * B(k, j));
        }
        const double bound = 1.001 * RoundingOf<Out>() * std::abs(want) +
                             kSumError * std::sqrt(static_cast<double>(shape.k)) * magnitude;
        ASSERT_LE(std::abs(ToDouble(c[at]) - want), bound) << "C[" << i << "," << j << "]";
      }
    }
  }

  void Run(MatmulPath path, ThreadPool* pool = nullptr) {
    size_t bytes = 0;
    const size_t threads = pool == nullptr ? 1 : pool->threads();
    const Status planned = MatmulWorkspaceBytes<In, Out>(shape, &bytes, path, threads);
    ASSERT_EQ(planned, Status::kOk) << StatusName(planned);
    Workspace workspace(bytes);
    const Status status = Matmul(shape, a.data(), b.data(), shape.bias ? bias.data() : nullptr,
                                 c.data(), workspace.data(), workspace.bytes(), path, pool);
    ASSERT_EQ(status, Status::kOk) << StatusName(status);
    EXPECT_TRUE(workspace.array.GuardsIntact());
  }

  MatmulShape shape;
  std::mt19937 random;
  GuardedArray<In> a, b;
  GuardedArray<Out> c, bias;
};

TEST(MatmulTiles, OfAnyShape_CoverTheMatrixOnce) {
  for (const size_t m : {1, 63, 64, 200, 384, 1000, 3001}) {
    for (const size_t n : {1, 65, 128, 300, 1536}) {
      for (const size_t k : {1, 70, 4000}) {
        const MatmulTiles tiles({.m = m, .n = n, .k = k});
        std::vector<int> seen(m * n, 0);
        for (size_t i = 0; i < tiles.count(); ++i) {
          const MatmulTile tile = tiles.At(i);
          ASSERT_GT(tile.rows * tile.cols, 0u);
          for (size_t r = tile.row; r < tile.row + tile.rows; ++r) {
            for (size_t c = tile.col; c < tile.col + tile.cols; ++c) ++seen[r * n + c];
          }
        }
        ASSERT_EQ(seen, std::vector<int>(m * n, 1)) << m << ' ' << n << ' ' << k;
      }
    }
  }
}

TEST(MatmulTiles, OfATrainersProducts_AreSharedEvenlyByUpToEightThreads) {
  for (const MatmulShape& shape :
       {MatmulShape{.m = 1024, .n = 128, .k = 384}, MatmulShape{.m = 512, .n = 512, .k = 1024},
        MatmulShape{.m = 256, .n = 256, .k = 512}, MatmulShape{.m = 2048, .n = 4096, .k = 4096}}) {
    EXPECT_EQ(MatmulTiles(shape).count() % 8, 0u) << shape.m;
  }
  EXPECT_EQ(MatmulTiles({.m = 100, .n = 100, .k = 100}).count(), 1u);  // too small to share
}

// Shapes, transposed or not, with rows of 1200 elements. The product copies A, B, or both.
std::vector<MatmulShape> PackedShapes() {
  constexpr size_t kLong = 1200, kLonger = 2048;
  return {{.m = 150, .n = 200, .k = 300, .bias = true, .b_stride = kLong},
          {.m = 300,
           .n = 130,
           .k = 270,
           .transpose_b = Transpose::kYes,
           .accumulate = true,
           .b_stride = kLonger},
          {.m = 150,
           .n = 200,
           .k = 300,
           .transpose_a = Transpose::kYes,
           .bias = true,
           .a_stride = kLong},
          {.m = 270,
           .n = 530,
           .k = 31,
           .transpose_a = Transpose::kYes,
           .transpose_b = Transpose::kYes,
           .accumulate = true,
           .bias = true,
           .a_stride = kLong,
           .b_stride = kLonger},
          {.m = 270,
           .n = 530,
           .k = 257,
           .transpose_a = Transpose::kYes,
           .a_stride = kLong,
           .b_stride = kLong}};
}

MatmulShape FilledIn(MatmulShape shape) {
  if (shape.a_stride == 0) shape.a_stride = ColsA(shape);
  if (shape.b_stride == 0) shape.b_stride = ColsB(shape);
  if (shape.c_stride == 0) shape.c_stride = shape.n + 3;
  return shape;
}

TEST(Packing, OfAMatrixReadDownItsLongRows_PaysWhereTheCopyIsUsedOften) {
  const auto packing = [](const MatmulShape& shape) {
    const Packing chosen = PackingOf(FilledIn(shape));
    return std::pair(chosen.a, chosen.b);
  };
  const auto none = std::pair(false, false), a = std::pair(true, false), b = std::pair(false, true);
  const auto both = std::pair(true, true);
  // GPT-2's first matrix of the MLP, stored [768, 3072], and 256 columns of it.
  EXPECT_EQ(packing(LinearBackwardWeightShape(256, 768, 3072)), both);
  EXPECT_EQ(packing(LinearBackwardWeightShape(256, 256, 3072)), a);
  EXPECT_EQ(packing({.m = 256, .n = 256, .k = 768, .b_stride = 3072}), b);
  EXPECT_EQ(
      packing({.m = 1024, .n = 768, .k = 256, .transpose_b = Transpose::kYes, .b_stride = 3072}),
      b);
  EXPECT_EQ(packing(LinearForwardShape(256, 768, 3072, true)), none);  // read along its rows
  EXPECT_EQ(packing(LinearBackwardInputShape(256, 384, 1536)), none);  // rows of 384 elements
  EXPECT_EQ(packing({.m = 63, .n = 256, .k = 768, .b_stride = 3072}), none);  // used 63 times
  EXPECT_EQ(packing({.m = 64, .n = 64, .k = 64, .b_stride = 3072}), none);    // soon done
}

TEST(PackedTiles, OfAnyShape_CoverTheProductOnceInBoundedBlocks) {
  for (const size_t m : {1, 64, 200, 384, 1000, 3001}) {
    for (const size_t n : {1, 65, 300, 1536}) {
      for (const size_t k : {1, 256, 257, 3000}) {
        for (const Packing packing : {Packing{true, false}, Packing{false, true}, {true, true}}) {
          const PackedTiles tiles({.m = m, .n = n, .k = k}, packing);
          size_t rows = 0, cols = 0, depth = 0;
          for (size_t i = 0; i < tiles.row_tiles(); ++i) {
            ASSERT_EQ(tiles.Rows(i).begin, rows);
            rows = tiles.Rows(i).end;
            ASSERT_LE(tiles.Rows(i).size(), 256u);
          }
          for (size_t i = 0; i < tiles.col_tiles(); ++i) {
            ASSERT_EQ(tiles.Cols(i).begin, cols);
            cols = tiles.Cols(i).end;
            ASSERT_LE(tiles.Cols(i).size(), 512u);
          }
          for (size_t i = 0; i < tiles.depths(); ++i) {
            ASSERT_EQ(tiles.Depth(i).begin, depth);
            depth = tiles.Depth(i).end;
            ASSERT_LE(tiles.Depth(i).size(), 256u);
          }
          ASSERT_EQ(std::tuple(rows, cols, depth), std::tuple(m, n, k));
        }
      }
    }
  }
}

TEST(PackedTiles, OfATrainersProducts_AreAtLeastEight) {
  for (const Packing packing : {Packing{true, false}, Packing{false, true}, Packing{true, true}}) {
    for (const MatmulShape& shape :
         {MatmulShape{.m = 256, .n = 256, .k = 768}, MatmulShape{.m = 768, .n = 256, .k = 1024},
          MatmulShape{.m = 256, .n = 3072, .k = 768}, MatmulShape{.m = 3072, .n = 768, .k = 256}}) {
      const PackedTiles tiles(shape, packing);
      EXPECT_GE(tiles.row_tiles() * tiles.col_tiles(), 8u) << shape.m << " " << shape.n;
    }
  }
}

TEST(Matmul, OnCopiesOfBlocks_MatchesFloat64) {
  unsigned seed = 40;
  for (const MatmulShape& shape : PackedShapes()) {
    ASSERT_TRUE(PackingOf(FilledIn(shape)).any());
    SCOPED_TRACE(++seed);
    Problem<float, float>(FilledIn(shape), seed).Check(MatmulPath::kAuto);
  }
}

TEST(Matmul, OnCopiesOfBlocks_GivesTheSameBitsOnAnyNumberOfThreads) {
  for (const MatmulShape& shape : PackedShapes()) {
    Doubles first;
    for (const size_t threads : {1, 2, 7}) {
      std::unique_ptr<ThreadPool> pool;
      ASSERT_EQ(ThreadPool::Create({.threads = threads}, &pool), Status::kOk);
      Problem<float, float> problem(FilledIn(shape), 11);
      problem.Run(MatmulPath::kAuto, threads == 1 ? nullptr : pool.get());
      if (threads == 1) first = ToDoubles(problem.c);
      EXPECT_EQ(ToDoubles(problem.c), first) << threads;
    }
  }
}

TEST(Matmul, OnCopiesOfBlocks_NeedsTwoBlocksForEachThread) {
  // Tiles have 256 x 512 elements, and sums have parts of 256. A copy's rows are a cache line wider
  // than the block's.
  MatmulShape shape = LinearBackwardWeightShape(/*tokens=*/4096, /*in=*/8192, /*out=*/4096);
  size_t bytes = 0, of_four = 0;
  ASSERT_EQ((MatmulWorkspaceBytes<float, float>(shape, &bytes)), Status::kOk);
  ASSERT_EQ((MatmulWorkspaceBytes<float, float>(shape, &of_four, MatmulPath::kAuto, 4)),
            Status::kOk);
  EXPECT_GE(bytes, 4u * (256 * (256 + 16) + 256 * (512 + 16)));
  EXPECT_LE(bytes, 1u << 20);
  EXPECT_EQ(of_four, 4 * bytes);
}

TEST(Transpose, OfAnySize_PutsColumnsIntoRows) {
  constexpr size_t kFrom = 40, kTo = 50;
  for (const size_t rows : {1, 3, 4, 7, 33}) {
    for (const size_t cols : {1, 4, 5, 31}) {
      std::vector<float> from(rows * kFrom), to(cols * kTo, -1.0F);
      for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i);
      TransposeFloats({rows, cols, kFrom}, from.data(), to.data(), kTo);
      for (size_t c = 0; c < cols; ++c) {
        for (size_t r = 0; r < kTo; ++r) {
          ASSERT_EQ(to[c * kTo + r], r < rows ? from[r * kFrom + c] : -1.0F) << rows << "x" << cols;
        }
      }
    }
  }
}

TYPED_TEST(Matrices, Matmul_OnATurnedCopyOfA_MatchesFloat64) {
  using In = typename TypeParam::InType;
  using Out = typename TypeParam::OutType;
  const MatmulShape shape = WithStrides({.m = 1030,
                                         .n = 70,
                                         .k = 37,
                                         .transpose_a = Transpose::kYes,
                                         .accumulate = true,
                                         .bias = true},
                                        3);
  ASSERT_TRUE(CopyPays(shape.m, shape.n));
  Problem<In, Out>(shape, 50).Check(MatmulPath::kWiden);
}

TYPED_TEST(Matrices, Matmul_OnAnyNumberOfThreads_GivesTheSameBits) {
  using In = typename TypeParam::InType;
  using Out = typename TypeParam::OutType;
  for (const MatmulShape& shape :
       {MatmulShape{.m = 300, .n = 130, .k = 120, .bias = true}, MatmulShape{.m = 150,
                                                                 .n = 330,
                                                                 .k = 90,
                                                                 .transpose_a = Transpose::kYes,
                                                                 .transpose_b = Transpose::kYes,
                                                                 .accumulate = true}}) {
    ASSERT_GT(MatmulTiles(shape).count(), 4u);
    for (const MatmulPath path : {MatmulPath::kAuto, MatmulPath::kWiden}) {
      Doubles first;
      for (const size_t threads : {1, 2, 3, 7}) {
        std::unique_ptr<ThreadPool> pool;
        ASSERT_EQ(ThreadPool::Create({.threads = threads}, &pool), Status::kOk);
        Problem<In, Out> problem(WithStrides(shape, 5), 11);
        problem.Run(path, threads == 1 ? nullptr : pool.get());
        EXPECT_TRUE(problem.c.GuardsIntact());
        if (threads == 1) first = ToDoubles(problem.c);
        EXPECT_EQ(ToDoubles(problem.c), first) << threads;
      }
    }
  }
}

TYPED_TEST(Matrices, Matmul_EveryVariant_MatchesFloat64) {
  using In = typename TypeParam::InType;
  using Out = typename TypeParam::OutType;
  const size_t sizes[][3] = {{1, 1, 1},    {5, 3, 7},   {33, 65, 129},
                             {64, 48, 32}, {1, 70, 40}, {150, 140, 100}};
  unsigned seed = 0;
  for (const auto& [m, n, k] : sizes) {
    for (unsigned flags = 0; flags < 32; ++flags) {
      SCOPED_TRACE(::testing::Message() << m << "x" << n << "x" << k << " flags " << flags);
      const MatmulShape shape = {.m = m,
                                 .n = n,
                                 .k = k,
                                 .transpose_a = (flags & 1) ? Transpose::kYes : Transpose::kNo,
                                 .transpose_b = (flags & 2) ? Transpose::kYes : Transpose::kNo,
                                 .accumulate = (flags & 4) != 0,
                                 .bias = (flags & 8) != 0};
      const size_t extra = (flags & 16) != 0 ? 3 : 0;
      for (const MatmulPath path : {MatmulPath::kAuto, MatmulPath::kWiden}) {
        Problem<In, Out> problem(WithStrides(shape, extra), ++seed);
        problem.Check(path);
        if (this->HasFatalFailure()) return;
      }
    }
  }
}

TYPED_TEST(Matrices, Matmul_Addresses_DoNotChangeBits) {
  using In = typename TypeParam::InType;
  using Out = typename TypeParam::OutType;
  for (const auto transpose_a : {Transpose::kNo, Transpose::kYes}) {
    const MatmulShape shape = WithStrides(
        {.m = 70, .n = 90, .k = 200, .transpose_a = transpose_a, .accumulate = true}, 0);
    Problem<In, Out> first(shape, 7);
    first.Run(MatmulPath::kAuto);
    for (const size_t shift : {0, 1, 8, 32, 63}) {
      Problem<In, Out> other(shape, 7, shift);
      other.Run(MatmulPath::kAuto);
      EXPECT_TRUE(SameBits(first.c.data(), other.c.data(), first.c.size())) << shift;
    }
  }
}

TYPED_TEST(Matrices, Matmul_RowBlocks_DoNotMixRows) {
  using In = typename TypeParam::InType;
  using Out = typename TypeParam::OutType;
  // A row of the product does not depend on the values of other rows.
  const MatmulShape shape = WithStrides({.m = 64, .n = 64, .k = 96}, 0);
  Problem<In, Out> first(shape, 9);
  Problem<In, Out> second(shape, 9);
  for (size_t i = shape.k; i < second.a.size(); ++i) second.a[i] = ToElement<In>(0.0);
  first.Run(MatmulPath::kAuto);
  second.Run(MatmulPath::kAuto);
  EXPECT_TRUE(SameBits(first.c.data(), second.c.data(), shape.n));
}

TYPED_TEST(Matrices, Linear_ThreeProducts_AreTheGradients) {
  using In = typename TypeParam::InType;
  using Out = typename TypeParam::OutType;
  const size_t tokens = 11;
  const size_t in = 19;
  const size_t out = 23;
  Problem<In, Out>(WithStrides(LinearForwardShape(tokens, in, out, true), 0), 1)
      .Check(MatmulPath::kAuto);
  Problem<In, Out> dx(WithStrides(LinearBackwardInputShape(tokens, in, out), 0), 2);
  EXPECT_EQ(dx.a.size(), tokens * out);
  EXPECT_EQ(dx.b.size(), out * in);
  dx.Check(MatmulPath::kAuto);
  Problem<In, Out> dw(WithStrides(LinearBackwardWeightShape(tokens, in, out, true), 0), 3);
  EXPECT_EQ(dw.a.size(), tokens * out);
  EXPECT_EQ(dw.b.size(), tokens * in);
  EXPECT_EQ(dw.c.size(), out * in);
  dw.Check(MatmulPath::kAuto);
}

TEST(Matmul, Subnormals_FlushingThread_SameBits) {
  const MatmulShape shape = WithStrides({.m = 8, .n = 16, .k = 8}, 0);
  Problem<float, float> want(shape, 21);
  Problem<float, float> got(shape, 21);
  for (size_t i = 0; i < want.a.size(); ++i) want.a[i] = got.a[i] = want.a[i] * 1e-39F;
  want.Run(MatmulPath::kAuto);
  EXPECT_NE(want.c[0], 0.0F);
  std::thread flushing([&] {
#if defined(__SSE2__)
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040u);  // flush results, inputs to zero
#endif
    got.Run(MatmulPath::kAuto);
  });
  flushing.join();
  EXPECT_TRUE(SameBits(want.c.data(), got.c.data(), want.c.size()));
}

TEST(Matmul, Threads_NoneAreStarted) {
  const auto threads = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
  };
  const auto before = threads();
  Problem<BFloat16, BFloat16> problem(WithStrides({.m = 512, .n = 512, .k = 512}, 0), 5);
  problem.Run(MatmulPath::kAuto);
  EXPECT_EQ(threads(), before);
}

TEST(Matmul, ManyShapes_PlansStayBounded) {
  PlanCache& plans = PlanCache::OfThisThread();
  for (size_t m = 1; m <= 2 * PlanCache::kPlansMax; ++m) {
    Problem<float, float>(WithStrides({.m = m, .n = 5, .k = 6}, 0), 6).Check(MatmulPath::kAuto);
    EXPECT_LE(plans.size(), PlanCache::kPlansMax);
  }
  EXPECT_EQ(plans.size(), PlanCache::kPlansMax);
}

TEST(Matmul, BadArguments_AreRefusedUntouched) {
  Problem<float, float> p(WithStrides({.m = 8, .n = 8, .k = 8}, 0), 8);
  const Doubles before = ToDoubles(p.c);
  size_t bytes = 0;
  ASSERT_EQ((MatmulWorkspaceBytes<float, float>(p.shape, &bytes)), Status::kOk);
  Workspace workspace(bytes + 64);
  const auto run = [&](const MatmulShape& shape, const float* a, float* c, size_t size) {
    return Matmul<float, float>(shape, a, p.b.data(), nullptr, c, workspace.data(), size);
  };
  MatmulShape shape = p.shape;
  shape.k = 0;
  EXPECT_EQ(run(shape, p.a.data(), p.c.data(), bytes), Status::kInvalidShape);
  shape = p.shape;
  shape.a_stride = 7;
  EXPECT_EQ(run(shape, p.a.data(), p.c.data(), bytes), Status::kInvalidShape);
  EXPECT_EQ(run(p.shape, nullptr, p.c.data(), bytes), Status::kNullPointer);
  EXPECT_EQ(run(p.shape, p.a.data(), p.a.data() + 4, bytes), Status::kOverlap);
  shape = p.shape;
  shape.bias = true;
  EXPECT_EQ(run(shape, p.a.data(), p.c.data(), bytes), Status::kNullPointer);
  // fp32 copies always need a workspace.
  EXPECT_EQ((Matmul<float, float>(p.shape, p.a.data(), p.b.data(), nullptr, p.c.data(),
                                  workspace.data(), 64, MatmulPath::kWiden)),
            Status::kInvalidParameter);
  EXPECT_EQ(ToDoubles(p.c), before);
}

}  // namespace
}  // namespace geminid::kernels
