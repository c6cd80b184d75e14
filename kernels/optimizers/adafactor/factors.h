#ifndef GEMINID_KERNELS_OPTIMIZERS_ADAFACTOR_FACTORS_H_
#define GEMINID_KERNELS_OPTIMIZERS_ADAFACTOR_FACTORS_H_

#include <cstdint>

// Adafactor and CAME store factors instead of a full-size second moment. A matrix has an average
// per row and one per column; their outer product over their mean approximates the moment. Other
// tensors have an average per element (a matrix of one row has one column per element).
namespace geminid::kernels {

struct FactorShape {
  uint64_t rows = 1;  // >= 1
  uint64_t cols = 1;  // >= 1

  constexpr uint64_t Elements() const { return rows * cols; }
  constexpr bool Factored() const { return rows > 1 && cols > 1; }
  constexpr uint64_t Rows() const { return Factored() ? rows : 0; }
  constexpr uint64_t Columns() const { return Factored() ? cols : Elements(); }
  // Rows, then columns: the layout of every array below.
  constexpr uint64_t Count() const { return Rows() + Columns(); }
  constexpr uint64_t ColumnSpace() const { return Factored() ? cols : 0; }
};

// The arrays of one tensor, FactorShape::Count() each:
//   sums     float64: sums of squares over a row, over a column; 0 before the first part is added.
//            Beside it passes overwrite a `column_space` of ColumnSpace().
//   factors  fp32: the averages; 0 before step 1
//   scales   fp32: 1 / sqrt(factor), those of rows relative to the mean of all rows, so that
//            scale of row x scale of column is 1 / sqrt(approximated moment)

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_ADAFACTOR_FACTORS_H_
