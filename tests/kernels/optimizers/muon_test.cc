// Compares Muon's step of matrices with its formulas in float64.
#include "kernels/optimizers/muon/muon.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "kernels/optimizers/muon/newton_schulz.h"
#include "kernels/optimizers/sharded_step.h"

namespace geminid::kernels {
namespace {

using Vector = std::vector<double>;

// The product of a [m, k] and b [k, n], each possibly transposed in memory.
Vector Product(const Vector& a, bool transpose_a, const Vector& b, bool transpose_b, size_t m,
               size_t n, size_t k) {
  Vector c(m * n);
  for (size_t i = 0; i < m; ++i) {
    for (size_t j = 0; j < n; ++j) {
      for (size_t l = 0; l < k; ++l) {
        c[i * n + j] += (transpose_a ? a[l * m + i] : a[i * k + l]) *
                        (transpose_b ? b[j * k + l] : b[l * n + j]);
      }
    }
  }
  return c;
}

double Norm(const Vector& v) {
  double squares = 0;
  for (const double x : v) squares += x * x;
  return std::sqrt(squares);
}

// The paper's loop on the side for which it is written: x x^T from the left.
Vector Orthogonal(const Vector& u, size_t rows, size_t cols) {
  Vector x = u;
  for (double& value : x) value /= Norm(u);
  for (int step = 0; step < 5; ++step) {
    const Vector a = Product(x, false, x, true, rows, rows, cols);
    const Vector aa = Product(a, false, a, false, rows, rows, rows);
    Vector b(a.size());
    for (size_t i = 0; i < b.size(); ++i) b[i] = -4.7750 * a[i] + 2.0315 * aa[i];
    const Vector bx = Product(b, false, x, false, rows, cols, rows);
    for (size_t i = 0; i < x.size(); ++i) x[i] = 3.4445 * x[i] + bx[i];
  }
  return x;
}

Vector Transposed(const Vector& a, size_t rows, size_t cols) {
  Vector b(a.size());
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < cols; ++j) b[j * rows + i] = a[i * cols + j];
  }
  return b;
}

// Memory with the alignment that kernels need.
class Lines {
 public:
  void* Bytes(size_t bytes) {
    lines_.resize(bytes / sizeof(Line) + 1);
    return lines_.data();
  }

 private:
  struct alignas(64) Line {
    std::array<std::byte, 64> bytes;
  };
  std::vector<Line> lines_;
};

// Weights, momentum and gradient of matrices, and their step.
struct Matrices {
  explicit Matrices(const MatrixShape& of, uint64_t seed = 1)
      : shape(of), weight(of.Elements()), momentum(of.Elements()), gradient(of.Elements()) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < weight.size(); ++i) {
      weight[i] = normal(random);
      momentum[i] = 0.1F * normal(random);
      gradient[i] = normal(random);
    }
  }

  ParameterArrays arrays() {
    ParameterArrays made;
    made.master = weight.data();
    made.state[0] = momentum.data();
    return made;
  }

  Status Step(const MuonOptions& options, ThreadPool* pool = nullptr) {
    size_t bytes = 0;
    const Status planned = MuonWorkspaceBytes(shape, pool == nullptr ? 1 : pool->threads(), &bytes);
    if (planned != Status::kOk) return planned;
    return MuonStep(options, shape, arrays().View(), gradient.data(), arrays(),
                    workspace.Bytes(bytes), bytes, pool);
  }

  MatrixShape shape;
  std::vector<float> weight, momentum, gradient;
  Lines workspace;
};

MuonOptions Usual() {
  return {.learning_rate = 0.02, .momentum = 0.9, .weight_decay = 0.1, .grad_scale = 0.5};
}

TEST(Muon, Step_IsThatOfTheFormulasToTheRoundingOfBFloat16) {
  for (const MatrixShape& shape :
       {MatrixShape{1, 24, 40}, MatrixShape{1, 40, 24}, MatrixShape{1, 32, 32}}) {
    for (const bool nesterov : {true, false}) {
      SCOPED_TRACE(testing::Message() << shape.rows << " x " << shape.cols << " " << nesterov);
      MuonOptions options = Usual();
      options.nesterov = nesterov;
      Matrices m(shape);
      const Matrices before = m;
      ASSERT_EQ(m.Step(options), Status::kOk);
      Vector u(m.weight.size());
      for (size_t i = 0; i < u.size(); ++i) {
        const double g = 0.5 * before.gradient[i];
        const double moved = 0.9 * before.momentum[i] + (1 - 0.9) * g;
        EXPECT_NEAR(m.momentum[i], moved, 1e-6);
        u[i] = nesterov ? 0.9 * moved + (1 - 0.9) * g : moved;
      }
      const bool tall = shape.rows > shape.cols;
      const Vector o = tall ? Transposed(Orthogonal(Transposed(u, shape.rows, shape.cols),
                                                    shape.cols, shape.rows),
                                         shape.cols, shape.rows)
                            : Orthogonal(u, shape.rows, shape.cols);
      const double rate = 0.02 * 0.2 * std::sqrt(std::max(shape.rows, shape.cols));
      Vector error(o.size());
      for (size_t i = 0; i < o.size(); ++i) {
        const double update = before.weight[i] * (1 - 0.02 * 0.1) - m.weight[i];
        error[i] = update / rate - o[i];
      }
      // Fifteen products of bf16 matrices, each rounded by at most 2^-9 of its elements.
      EXPECT_LT(Norm(error), 0.02 * Norm(o));
    }
  }
}

TEST(Muon, Update_HasSingularValuesNearOne) {
  constexpr size_t kRows = 48, kCols = 96;
  MuonOptions options = Usual();
  options.weight_decay = 0;
  options.rate = MuonRate::kOriginal;  // for a wide matrix: 1
  options.learning_rate = 1;
  Matrices m({1, kRows, kCols});
  std::ranges::fill(m.weight, 0);
  ASSERT_EQ(m.Step(options), Status::kOk);
  const Vector o(m.weight.begin(), m.weight.end());
  const Vector gram = Product(o, false, o, true, kRows, kRows, kCols);
  double trace = 0;
  for (size_t i = 0; i < kRows; ++i) trace += gram[i * kRows + i];
  // The mean square of the singular values, which are each from 0.7 to 1.2.
  EXPECT_GT(trace / kRows, 0.5);
  EXPECT_LT(trace / kRows, 1.44);
  // The off-diagonal values are small: rows are nearly orthogonal to each other.
  double off = 0;
  for (size_t i = 0; i < kRows; ++i) {
    for (size_t j = 0; j < i; ++j) off = std::max(off, std::abs(gram[i * kRows + j]));
  }
  EXPECT_LT(off, 0.35);
}

TEST(Muon, Scale_IsThatOfEachSource) {
  EXPECT_DOUBLE_EQ(MuonScale(MuonRate::kAsAdamW, {1, 1024, 256}), 0.2 * 32);
  EXPECT_DOUBLE_EQ(MuonScale(MuonRate::kAsAdamW, {1, 256, 1024}), 0.2 * 32);
  EXPECT_DOUBLE_EQ(MuonScale(MuonRate::kOriginal, {1, 1024, 256}), 2);
  EXPECT_DOUBLE_EQ(MuonScale(MuonRate::kOriginal, {1, 256, 1024}), 1);
}

TEST(Muon, SeveralMatricesAndThreads_HaveTheBitsOfEachAloneOnOneThread) {
  constexpr size_t kMatrices = 3, kRows = 96, kCols = 200;
  std::unique_ptr<ThreadPool> pool;
  ASSERT_EQ(ThreadPool::Create({.threads = 3}, &pool), Status::kOk);
  Matrices all({kMatrices, kRows, kCols});
  const Matrices before = all;
  ASSERT_EQ(all.Step(Usual(), pool.get()), Status::kOk);
  for (size_t i = 0; i < kMatrices; ++i) {
    Matrices one({1, kRows, kCols});
    const size_t at = i * kRows * kCols;
    for (const auto member : {&Matrices::weight, &Matrices::momentum, &Matrices::gradient}) {
      std::copy_n((before.*member).begin() + at, kRows * kCols, (one.*member).begin());
    }
    ASSERT_EQ(one.Step(Usual()), Status::kOk);
    EXPECT_TRUE(std::equal(one.weight.begin(), one.weight.end(), all.weight.begin() + at));
    EXPECT_TRUE(std::equal(one.momentum.begin(), one.momentum.end(), all.momentum.begin() + at));
  }
}

TEST(Muon, OutOfPlace_HasTheBitsOfInPlaceAndLeavesTheOldOnes) {
  Matrices m({1, 40, 56});
  const Matrices before = m;
  std::vector<float> weight(m.weight.size()), momentum(m.weight.size());
  ParameterArrays to;
  to.master = weight.data();
  to.state[0] = momentum.data();
  size_t bytes = 0;
  ASSERT_EQ(MuonWorkspaceBytes(m.shape, 1, &bytes), Status::kOk);
  ASSERT_EQ(MuonStep(Usual(), m.shape, m.arrays().View(), m.gradient.data(), to,
                     m.workspace.Bytes(bytes), bytes, nullptr),
            Status::kOk);
  EXPECT_EQ(m.weight, before.weight);
  EXPECT_EQ(m.momentum, before.momentum);
  ASSERT_EQ(m.Step(Usual()), Status::kOk);
  EXPECT_EQ(m.weight, weight);
  EXPECT_EQ(m.momentum, momentum);
}

TEST(Muon, GradientsOfZero_MoveNothingButTheDecay) {
  Matrices m({1, 8, 16});
  std::ranges::fill(m.gradient, 0);
  std::ranges::fill(m.momentum, 0);
  const std::vector<float> before = m.weight;
  MuonOptions options = Usual();
  options.weight_decay = 0;
  ASSERT_EQ(m.Step(options), Status::kOk);
  EXPECT_EQ(m.weight, before);
}

TEST(Muon, GradientThatIsNotFinite_MakesItsMatrixNaN) {
  Matrices m({2, 8, 16});
  m.gradient[3] = std::numeric_limits<float>::infinity();
  ASSERT_EQ(m.Step(Usual()), Status::kOk);
  for (size_t i = 0; i < m.weight.size(); ++i) {
    EXPECT_EQ(std::isnan(m.weight[i]), i < 8 * 16) << i;
  }
}

TEST(Muon, BadArguments_AreRefusedBeforeAnythingIsWritten) {
  Matrices m({1, 8, 16});
  const Matrices before = m;
  size_t bytes = 0;
  ASSERT_EQ(MuonWorkspaceBytes(m.shape, 1, &bytes), Status::kOk);
  const auto step = [&](const MuonOptions& options, const MatrixShape& shape, void* workspace,
                        size_t size) {
    return MuonStep(options, shape, m.arrays().View(), m.gradient.data(), m.arrays(), workspace,
                    size, nullptr);
  };
  MuonOptions bad = Usual();
  bad.momentum = 1;
  EXPECT_EQ(step(bad, m.shape, m.workspace.Bytes(bytes), bytes), Status::kInvalidParameter);
  EXPECT_EQ(step(Usual(), {1, 0, 16}, m.workspace.Bytes(bytes), bytes), Status::kInvalidShape);
  EXPECT_EQ(step(Usual(), m.shape, nullptr, bytes), Status::kNullPointer);
  EXPECT_EQ(step(Usual(), m.shape, m.workspace.Bytes(bytes), bytes - 1), Status::kSizeOverflow);
  EXPECT_EQ(m.weight, before.weight);
  EXPECT_EQ(m.momentum, before.momentum);
}

TEST(Muon, SegmentThatIsAPartOfItsMatrix_IsRefused) {
  TensorOptions tensor;
  tensor.shape = {16, 8};
  tensor.matrix_rows = 16;
  OptimizerOptions options;
  options.kind = OptimizerKind::kMuon;
  ShardedStep step(options, {tensor});
  ASSERT_EQ(step.Prepare({.learning_rate = 1}, {}, nullptr, {}, nullptr), Status::kOk);
  Matrices m({1, 16, 8});
  Lines workspace;
  size_t bytes = 0;
  ASSERT_EQ(step.MatrixWorkspaceBytes(1, &bytes), Status::kOk);
  step.SetMatrixWorkspace({static_cast<std::byte*>(workspace.Bytes(bytes)), bytes});
  Segment segment;
  segment.tensor = 0;
  segment.count = 120;
  segment.arrays = m.arrays().View();
  segment.gradient = m.gradient.data();
  EXPECT_EQ(step.ApplyMatrices(segment, m.arrays(), nullptr), Status::kInvalidShape);
  segment.count = 128;
  EXPECT_EQ(step.Apply(segment, m.arrays()), Status::kUnsupported);
  EXPECT_EQ(step.ApplyMatrices(segment, m.arrays(), nullptr), Status::kOk);
}

}  // namespace
}  // namespace geminid::kernels
