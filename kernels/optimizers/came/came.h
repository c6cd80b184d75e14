#ifndef GEMINID_KERNELS_OPTIMIZERS_CAME_CAME_H_
#define GEMINID_KERNELS_OPTIMIZERS_CAME_CAME_H_

#include <cstddef>
#include <cstdint>

#include "kernels/optimizers/adafactor/factors.h"
#include "kernels/optimizers/step/parameter_arrays.h"
#include "kernels/runtime/common/status.h"

// CAME, "CAME: Confidence-guided Adaptive Memory Efficient Optimization" (Luo et al., 2023),
// algorithm 2, with a decoupled decay:
//
//   g   = grad_scale * gradient
//   u   = Adafactor's, with a constant beta2 in place of b, clipped by its RMS likewise
//   m'  = beta1 m + (1 - beta1) u
//   U'  = beta3 U + (1 - beta3) mean over the row of ((u - m')^2 + epsilon2);   S' by columns
//   w'  = w - learning_rate (m' / sqrt(U'_i S'_j / mean(U')) + weight_decay w)
//
// A tensor that is no matrix has no U and S: its update is m'.
//
// State array: m. Factors: R, C as kernels/optimizers/adafactor/factors.h says, then for a matrix
// U, S: see CameFactorCount. Four passes over the parts of a tensor, in any order within a pass:
// AddSquares, AddUpdateSquares after Factors, AddResidualSquares (matrices), Apply after
// ResidualFactors. `offset` is the part's first element within the tensor. Arithmetic, forms,
// threads and NaN as in kernels/optimizers/step/elementwise.h.
namespace geminid::kernels {

struct CameOptions {
  double learning_rate = 2e-4;  // >= 0
  double beta1 = 0.9;           // [0, 1)
  double beta2 = 0.999;         // [0, 1)
  double beta3 = 0.9999;        // [0, 1)
  double epsilon1 = 1e-30;      // > 0, also as a float
  double epsilon2 = 1e-16;      // > 0, also as a float
  double clip_threshold = 1.0;  // > 0
  double weight_decay = 0.0;    // >= 0
  uint64_t step = 1;            // >= 1; the rule does not use it
  double grad_scale = 1.0;      // finite
};

Status CheckCameOptions(const CameOptions& options);

// The number of factors, and of scales, of a tensor: for a matrix twice Adafactor's.
constexpr uint64_t CameFactorCount(const FactorShape& shape) {
  return shape.Factored() ? 2 * shape.Count() : shape.Count();
}

// Adds a part's g^2 to `sums`, shape.Count() of them.
Status CameAddSquares(const CameOptions& options, const FactorShape& shape, uint64_t offset,
                      const GradientArray& gradient, size_t count, double* sums,
                      double* column_space);

// Computes the first half of the factors (R, C) and their scales from the complete sums.
Status CameFactors(const CameOptions& options, const FactorShape& shape, const double* sums,
                   const float* old_factors, float* new_factors, float* scales);

// Adds a part's ||u||^2 before clipping.
Status CameAddUpdateSquares(const CameOptions& options, const FactorShape& shape, uint64_t offset,
                            const float* scales, const GradientArray& gradient, size_t count,
                            double* update_squares);

// Adds a part's (u - m')^2 to `sums`, shape.Count() of them, zeroed since the first pass.
Status CameAddResidualSquares(const CameOptions& options, const FactorShape& shape, uint64_t offset,
                              const float* scales, double update_squares,
                              const ConstParameterArrays& arrays, const GradientArray& gradient,
                              size_t count, double* sums, double* column_space);

// Computes the second half (U, S) of a matrix's factors and scales.
Status CameResidualFactors(const CameOptions& options, const FactorShape& shape, const double* sums,
                           const float* old_factors, float* new_factors, float* scales);

Status CameApply(const CameOptions& options, const FactorShape& shape, uint64_t offset,
                 const float* scales, double update_squares, const ConstParameterArrays& old_arrays,
                 const GradientArray& gradient, size_t count, const ParameterArrays& new_arrays);

// All passes, for a whole tensor. Workspace: `sums` of shape.Count() + shape.ColumnSpace(), and
// `scales` of CameFactorCount.
Status CameStep(const CameOptions& options, const FactorShape& shape,
                const ConstParameterArrays& old_arrays, const float* old_factors,
                const GradientArray& gradient, const ParameterArrays& new_arrays,
                float* new_factors, double* sums, float* scales);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_CAME_CAME_H_
