#ifndef GEMINID_KERNELS_OPTIMIZERS_ADAFACTOR_FACTOR_PASSES_H_
#define GEMINID_KERNELS_OPTIMIZERS_ADAFACTOR_FACTOR_PASSES_H_

#include <cstddef>
#include <cstdint>

#include "kernels/optimizers/adafactor/adafactor_rule.h"
#include "kernels/optimizers/adafactor/factors.h"
#include "kernels/optimizers/adafactor/row_pieces.h"
#include "kernels/optimizers/step/column_chunks.h"
#include "kernels/optimizers/step/elementwise.h"
#include "kernels/runtime/common/status.h"

// The passes that Adafactor and CAME share. Internal to the two.
namespace geminid::kernels {

// Checks that [offset, offset + count) lies in a tensor of a valid shape (else kInvalidShape), and
// that the array of factors, scales or sums is not null.
Status CheckFactorPass(const FactorShape& shape, uint64_t offset, size_t count,
                       const void* factors);
Status CheckColumnSpace(const FactorShape& shape, const double* column_space);
Status CheckGradient(const GradientArray& gradient, size_t count);
Status CheckFactorArrays(const FactorShape& shape, const float* old_factors,
                         const float* new_factors, const double* sums, uint64_t sum_count,
                         const float* scales);
// kInvalidParameter unless all are finite.
Status CheckSums(const FactorShape& shape, const double* sums, double weight_squares);

inline float RowScale(const FactorShape& shape, const float* scales, const RowPiece& piece) {
  return shape.Factored() ? scales[piece.row] : 1.0F;
}
inline const float* ColumnScales(const FactorShape& shape, const float* scales,
                                 const RowPiece& piece) {
  return scales + shape.Rows() + piece.column;
}
ReadPass PassOf(const ReadPass& whole, const RowPiece& piece, const float* column_scales);

// Where the squares of a part's pieces are added; the pieces come in order. Columns of a matrix are
// summed in chunks of rows (kernels/optimizers/step/column_chunks.h): `column_space` holds the sums
// of the current chunk, one per column.
class FactorSums {
 public:
  FactorSums(const FactorShape& shape, uint64_t offset, size_t count, double* sums,
             double* column_space);
  FactorSums(const FactorSums&) = delete;
  FactorSums& operator=(const FactorSums&) = delete;
  ~FactorSums() { AddChunk(); }

  SquareTotals At(const RowPiece& piece);

 private:
  void AddChunk();

  const FactorShape shape_;
  const ColumnChunks cut_;
  // The columns of which the part may have elements.
  const uint64_t first_column_;
  const uint64_t columns_;
  double* const sums_;
  double* const column_space_;
  uint64_t next_chunk_row_;
};

// Adds squares of the scaled gradient to `sums`, and of the weights to *weight_squares or null.
void AddFactorSquares(const FactorShape& shape, uint64_t offset, const ReadPass& pass,
                      float grad_scale, double* sums, double* column_space, double* weight_squares);

// new = kept old + (1 - kept) (mean of squares + epsilon), in float64, and the new scales.
Status AverageFactors(const FactorShape& shape, double kept, double epsilon, const double* sums,
                      const float* old_factors, float* new_factors, float* scales);

Status AddFactoredUpdateSquares(float grad_scale, const FactorShape& shape, uint64_t offset,
                                const float* scales, const GradientArray& gradient, size_t count,
                                double* update_squares);

// Applies AdafactorRule or AdafactorMomentumRule to a part.
void ApplyFactored(const FactorShape& shape, uint64_t offset, const float* scales,
                   AdafactorCoefficients k, bool momentum, const ReadPass& pass,
                   const ParameterArrays& new_arrays);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_ADAFACTOR_FACTOR_PASSES_H_
