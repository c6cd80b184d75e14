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

// The rows of which a part has elements.
uint64_t RowsOf(const FactorShape& shape, uint64_t offset, size_t count) {
  return count == 0 ? 0 : (offset + count - 1) / shape.Columns() - offset / shape.Columns() + 1;
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

Status CheckColumnSpace(const FactorShape& shape, const double* column_space) {
  return CheckBuffer(Buffer::Of(column_space, shape.ColumnSpace()));
}

Status CheckGradient(const GradientArray& gradient, size_t count) {
  switch (gradient.type) {
    case GradientType::kFloat:
      return CheckBuffer(Buffer::Of(static_cast<const float*>(gradient.data), count));
    case GradientType::kBFloat16:
      return CheckBuffer(Buffer::Of(static_cast<const uint16_t*>(gradient.data), count));
  }
  return Status::kUnsupported;
}

Status CheckFactorArrays(const FactorShape& shape, const float* old_factors,
                         const float* new_factors, const double* sums, uint64_t sum_count,
                         const float* scales) {
  if (!SaneShape(shape)) return Status::kInvalidShape;
  const uint64_t n = shape.Count();
  const Buffer old_buffer = Buffer::Of(old_factors, n);
  if (old_factors == new_factors) {
    return CheckBuffers({}, {old_buffer, Buffer::Of(sums, sum_count), Buffer::Of(scales, n)});
  }
  return CheckBuffers({old_buffer}, {Buffer::Of(new_factors, n), Buffer::Of(sums, sum_count),
                                     Buffer::Of(scales, n)});
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

FactorSums::FactorSums(const FactorShape& shape, uint64_t offset, size_t count, double* sums,
                       double* column_space)
    : shape_(shape),
      cut_(RowsOf(shape, offset, count)),
      first_column_(RowsOf(shape, offset, count) == 1 ? offset % shape.Columns() : 0),
      columns_(RowsOf(shape, offset, count) == 1 ? count : shape.Columns()),
      sums_(sums),
      column_space_(column_space),
      next_chunk_row_(offset / shape.Columns() + cut_.rows_per_chunk) {
  if (shape_.Factored()) std::fill_n(column_space_ + first_column_, columns_, 0.0);
}

SquareTotals FactorSums::At(const RowPiece& piece) {
  if (!shape_.Factored()) return {.columns = sums_ + piece.column};
  if (piece.row == next_chunk_row_) {
    AddChunk();
    next_chunk_row_ += cut_.rows_per_chunk;
  }
  return {.result = sums_ + piece.row, .columns = column_space_ + piece.column};
}

void FactorSums::AddChunk() {
  if (!shape_.Factored()) return;
  double* const columns = sums_ + shape_.Rows();
  for (uint64_t i = first_column_; i < first_column_ + columns_; ++i) {
    columns[i] += column_space_[i];
    column_space_[i] = 0;
  }
}

void AddFactorSquares(const FactorShape& shape, uint64_t offset, const ReadPass& pass,
                      float grad_scale, double* sums, double* column_space,
                      double* weight_squares) {
  const ScaledGradientRule rule = {grad_scale};
  FactorSums factor_sums(shape, offset, pass.count, sums, column_space);
  ForEachRowPiece(shape, offset, pass.count, [&](const RowPiece& piece) {
    SquareTotals totals = factor_sums.At(piece);
    totals.weight = weight_squares;
    MeasureElements(CallOf(rule), PassOf(pass, piece, nullptr), totals);
  });
}

Status AverageFactors(const FactorShape& shape, double kept, double epsilon, const double* sums,
                      const float* old_factors, float* new_factors, float* scales) {
  const Status status =
      CheckFactorArrays(shape, old_factors, new_factors, sums, shape.Count(), scales);
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
