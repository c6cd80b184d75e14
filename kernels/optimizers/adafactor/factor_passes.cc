#include "kernels/optimizers/adafactor/factor_passes.h"

#include <algorithm>
#include <cmath>

#include "kernels/runtime/common/buffers.h"
#include "kernels/runtime/common/float_environment.h"

namespace geminid::kernels {
namespace {

bool SaneShape(const FactorShape& shape) {
  uint64_t elements;
  return shape.rows >= 1 && shape.cols >= 1 &&
         !__builtin_mul_overflow(shape.rows, shape.cols, &elements);
}

// 1 / sqrt(factor / mean).
void InverseRoots(const float* factors, uint64_t count, double mean, float* scales) {
  for (uint64_t i = 0; i < count; ++i) {
    scales[i] = static_cast<float>(1.0 / std::sqrt(factors[i] / mean));
  }
}

}  // namespace

Status CheckFactorPass(const FactorShape& shape, uint64_t offset, size_t count,
                       const void* factors) {
  if (!SaneShape(shape)) return Status::kInvalidShape;
  if (offset > shape.Elements() || count > shape.Elements() - offset) return Status::kInvalidShape;
  return factors == nullptr ? Status::kNullPointer : Status::kOk;
}

Status CheckGradient(const GradientArray& gradient, size_t count) {
  switch (gradient.type) {
    case GradientType::kFloat:
      return CheckBuffer(Buffer::Of(static_cast<const float*>(gradient.data), count));
    case GradientType::kBFloat16:
    case GradientType::kFloat16:
      return CheckBuffer(Buffer::Of(static_cast<const uint16_t*>(gradient.data), count));
  }
  return Status::kUnsupported;
}

Status CheckFactorArrays(const FactorShape& shape, const float* old_factors,
                         const float* new_factors, const double* sums, const float* scales) {
  if (!SaneShape(shape)) return Status::kInvalidShape;
  const uint64_t n = shape.Count();
  const Buffer old_buffer = Buffer::Of(old_factors, n);
  if (old_factors == new_factors) {
    return CheckBuffers({}, {old_buffer, Buffer::Of(sums, n), Buffer::Of(scales, n)});
  }
  return CheckBuffers({old_buffer},
                      {Buffer::Of(new_factors, n), Buffer::Of(sums, n), Buffer::Of(scales, n)});
}

Status CheckSums(const FactorShape& shape, const double* sums, double weight_squares) {
  bool finite = std::isfinite(weight_squares);
  for (uint64_t i = 0; i < shape.Count(); ++i) finite = finite && std::isfinite(sums[i]);
  return finite ? Status::kOk : Status::kInvalidParameter;
}

ReadPass PassOf(const ReadPass& whole, const RowPiece& piece, const float* column_scales) {
  ReadPass pass = whole.From(piece.begin);
  pass.count = piece.count;
  pass.factor[0] = column_scales;
  return pass;
}

SquareTotals TotalsOf(const FactorShape& shape, double* sums, const RowPiece& piece) {
  return {.result = shape.Factored() ? sums + piece.row : nullptr,
          .columns = sums + shape.Rows() + piece.column};
}

void AddFactorSquares(const FactorShape& shape, uint64_t offset, const ReadPass& pass,
                      float grad_scale, double* sums, double* weight_squares) {
  const ScaledGradientRule rule = {grad_scale};
  ForEachRowPiece(shape, offset, pass.count, [&](const RowPiece& piece) {
    SquareTotals totals = TotalsOf(shape, sums, piece);
    totals.weight = weight_squares;
    MeasureElements(CallOf(rule), PassOf(pass, piece, nullptr), totals);
  });
}

Status AverageFactors(const FactorShape& shape, double kept, double epsilon, const double* sums,
                      const float* old_factors, float* new_factors, float* scales) {
  const Status status = CheckFactorArrays(shape, old_factors, new_factors, sums, scales);
  if (status != Status::kOk) return status;
  const ScopedFloatEnvironment environment;
  const auto row_length = static_cast<double>(shape.Columns());
  const double column_length = shape.Factored() ? static_cast<double>(shape.rows) : 1.0;
  for (uint64_t i = 0; i < shape.Count(); ++i) {
    const double mean = sums[i] / (i < shape.Rows() ? row_length : column_length) + epsilon;
    new_factors[i] = static_cast<float>(kept * old_factors[i] + (1.0 - kept) * mean);
  }
  return ScalesOfFactors(shape, new_factors, scales);
}

Status ScalesOfFactors(const FactorShape& shape, const float* factors, float* scales) {
  if (!SaneShape(shape)) return Status::kInvalidShape;
  const Status status =
      CheckBuffers({Buffer::Of(factors, shape.Count())}, {Buffer::Of(scales, shape.Count())});
  if (status != Status::kOk) return status;
  double sum = 0.0;
  for (uint64_t i = 0; i < shape.Rows(); ++i) sum += factors[i];
  InverseRoots(factors, shape.Rows(), sum / static_cast<double>(shape.rows), scales);
  InverseRoots(factors + shape.Rows(), shape.Columns(), 1.0, scales + shape.Rows());
  return Status::kOk;
}

}  // namespace geminid::kernels
