#include "kernels/optimizers/muon/newton_schulz.h"

#include <algorithm>
#include <cmath>

#include "kernels/model/matmul/matmul.h"
#include "kernels/numeric/norm/norm.h"
#include "kernels/runtime/common/float_environment.h"
#include "kernels/runtime/parallel/pieces.h"

namespace geminid::kernels {
namespace {

// The three products of a step, by the shorter side.
struct Products {
  MatmulShape gram;
  MatmulShape square;
  MatmulShape update;
};

Products ProductsOf(uint64_t rows, uint64_t cols) {
  const bool wide = rows <= cols;
  const uint64_t side = std::min(rows, cols);
  Products made;
  made.gram = {.m = side, .n = side, .k = std::max(rows, cols)};
  (wide ? made.gram.transpose_b : made.gram.transpose_a) = Transpose::kYes;
  made.square = {.m = side, .n = side, .k = side};
  made.update = {.m = rows, .n = cols, .k = side};
  return made;
}

// Not inlined, because ScopedFloatEnvironment needs the arithmetic behind calls.
__attribute__((noinline)) void ScaleSome(const float* u, float scale, size_t count, BFloat16* x) {
  for (size_t i = 0; i < count; ++i) x[i] = BFloat16::FromFloat(u[i] * scale);
}

__attribute__((noinline)) void CombineSome(size_t count, float p, const BFloat16* x, float q,
                                           const float* y, BFloat16* to) {
  for (size_t i = 0; i < count; ++i) to[i] = BFloat16::FromFloat(p * x[i].ToFloat() + q * y[i]);
}

// x = u / ||u||.
Status Normalize(size_t count, const float* u, BFloat16* x, ThreadPool* pool) {
  SquareSum squares;
  if (const Status status = AddSquares(u, count, &squares); status != Status::kOk) return status;
  const double norm = std::sqrt(squares.sum);  // NaN stays one
  const auto scale =
      static_cast<float>(1.0 / (norm < kNewtonSchulzLeastNorm ? kNewtonSchulzLeastNorm : norm));
  RunInPieces(pool, count, [&](size_t begin, size_t end) {
    const ScopedFloatEnvironment environment;
    ScaleSome(u + begin, scale, end - begin, x + begin);
  });
  return Status::kOk;
}

// to = p x + q y.
void Combine(size_t count, float p, const BFloat16* x, float q, const float* y, BFloat16* to,
             ThreadPool* pool) {
  RunInPieces(pool, count, [&](size_t begin, size_t end) {
    const ScopedFloatEnvironment environment;
    CombineSome(end - begin, p, x + begin, q, y + begin, to + begin);
  });
}

}  // namespace

Status NewtonSchulzProductBytes(uint64_t rows, uint64_t cols, size_t threads, size_t* bytes) {
  const Products products = ProductsOf(rows, cols);
  *bytes = 0;
  size_t of_gram = 0;
  Status status =
      MatmulWorkspaceBytes<BFloat16, BFloat16>(products.gram, &of_gram, MatmulPath::kAuto, threads);
  *bytes = of_gram;
  for (const MatmulShape& shape : {products.square, products.update}) {
    size_t needed = 0;
    if (status == Status::kOk) {
      status = MatmulWorkspaceBytes<BFloat16, float>(shape, &needed, MatmulPath::kAuto, threads);
    }
    *bytes = std::max(*bytes, needed);
  }
  return status;
}

Status NewtonSchulz(uint64_t rows, uint64_t cols, const NewtonSchulzSpace& space,
                    ThreadPool* pool) {
  const Products products = ProductsOf(rows, cols);
  const uint64_t side = std::min(rows, cols);
  const bool wide = rows <= cols;
  const auto multiply = [&]<typename Out>(const MatmulShape& shape, const BFloat16* a,
                                          const BFloat16* b, Out* c) {
    return Matmul<BFloat16, Out>(shape, a, b, nullptr, c, space.products, space.product_bytes,
                                 MatmulPath::kAuto, pool);
  };
  Status status = Normalize(rows * cols, space.wide, space.x, pool);
  for (int step = 0; step < kNewtonSchulzSteps && status == Status::kOk; ++step) {
    status = multiply(products.gram, space.x, space.x, space.gram);
    if (status == Status::kOk) {
      status = multiply(products.square, space.gram, space.gram, space.square);
    }
    if (status != Status::kOk) return status;
    Combine(side * side, kNewtonSchulzB, space.gram, kNewtonSchulzC, space.square, space.polynomial,
            pool);
    status = wide ? multiply(products.update, space.polynomial, space.x, space.wide)
                  : multiply(products.update, space.x, space.polynomial, space.wide);
    if (status != Status::kOk) return status;
    Combine(rows * cols, kNewtonSchulzA, space.x, 1.0F, space.wide, space.x, pool);
  }
  return status;
}

}  // namespace geminid::kernels
