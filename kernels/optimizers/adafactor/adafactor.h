#ifndef GEMINID_KERNELS_OPTIMIZERS_ADAFACTOR_ADAFACTOR_H_
#define GEMINID_KERNELS_OPTIMIZERS_ADAFACTOR_ADAFACTOR_H_

#include <cstddef>
#include <cstdint>

#include "kernels/optimizers/adafactor/factors.h"
#include "kernels/optimizers/step/parameter_arrays.h"
#include "kernels/runtime/common/status.h"

// Adafactor, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost" (Shazeer and Stern,
// 2018), algorithms 4 (matrices) and 5 (the rest), with the optional first moment and a decoupled
// decay:
//
//   g     = grad_scale * gradient
//   b     = 1 - step^-decay_exponent
//   R'    = b R + (1 - b) mean over the row of (g^2 + epsilon1);   C' by columns
//   u     = g / sqrt(R'_i C'_j / mean(R'))    (g / sqrt(C'_j) if the tensor is no matrix)
//   u    /= max(1, RMS(u) / clip_threshold)
//   m'    = beta1 m + (1 - beta1) u           (m' = u if beta1 is 0)
//   w'    = w - rate (m' + weight_decay w)
//   rate  = learning_rate
//           x min(1e-2, 1 / sqrt(step))       with relative_step (1e-6 step with warmup_init)
//           x max(epsilon2, RMS(w))           with scale_parameter
//
// learning_rate always applies: with relative_step it multiplies the paper's step, so 1 leaves that
// as it is. To set the rate yourself, turn relative_step off.
//
// State array: m; none if beta1 is 0. R and C: kernels/optimizers/adafactor/factors.h, computed in
// float64. A step has three passes, each over the parts of a tensor in any order: AddSquares; after
// Factors, AddUpdateSquares; then Apply. `offset` is the part's first element within the tensor;
// parts may begin and end within a row. Arithmetic, forms, threads and NaN as in
// kernels/optimizers/step/elementwise.h.
namespace geminid::kernels {

struct AdafactorOptions {
  double learning_rate = 1.0;   // >= 0
  double epsilon1 = 1e-30;      // > 0, also as a float
  double epsilon2 = 1e-3;       // >= 0
  double clip_threshold = 1.0;  // > 0
  double decay_exponent = 0.8;  // > 0
  double beta1 = 0.0;           // [0, 1)
  double weight_decay = 0.0;    // >= 0
  bool relative_step = true;
  bool warmup_init = false;  // only with relative_step
  bool scale_parameter = true;
  uint64_t step = 1;        // >= 1
  double grad_scale = 1.0;  // finite
};

Status CheckAdafactorOptions(const AdafactorOptions& options);

constexpr int AdafactorStateArrays(const AdafactorOptions& options) {
  return options.beta1 != 0 ? 1 : 0;
}

// The sums of one tensor.
struct AdafactorNorms {
  double weight_squares = 0.0;  // ||w||^2
  double update_squares = 0.0;  // ||u||^2 before it is clipped
};

// Adds a part's g^2 to `sums` and its ||w||^2 to *norms.
Status AdafactorAddSquares(const AdafactorOptions& options, const FactorShape& shape,
                           uint64_t offset, const ConstParameterArrays& arrays,
                           const GradientArray& gradient, size_t count, double* sums,
                           double* column_space, AdafactorNorms* norms);

// Computes the new factors from the old ones (they may be the same array), and their scales.
//
// `AdafactorKept` is the weight of the old factors in the new ones: b above.
double AdafactorKept(const AdafactorOptions& options);
Status AdafactorFactors(const AdafactorOptions& options, const FactorShape& shape,
                        const double* sums, const float* old_factors, float* new_factors,
                        float* scales);

// Adds a part's ||u||^2, before clipping, to *norms.
Status AdafactorAddUpdateSquares(const AdafactorOptions& options, const FactorShape& shape,
                                 uint64_t offset, const float* scales,
                                 const GradientArray& gradient, size_t count,
                                 AdafactorNorms* norms);

Status AdafactorApply(const AdafactorOptions& options, const FactorShape& shape, uint64_t offset,
                      const float* scales, const AdafactorNorms& norms,
                      const ConstParameterArrays& old_arrays, const GradientArray& gradient,
                      size_t count, const ParameterArrays& new_arrays);

// All passes, for a whole tensor. Workspace: `sums` of shape.Count() + shape.ColumnSpace(), and
// `scales` of shape.Count().
Status AdafactorStep(const AdafactorOptions& options, const FactorShape& shape,
                     const ConstParameterArrays& old_arrays, const float* old_factors,
                     const GradientArray& gradient, const ParameterArrays& new_arrays,
                     float* new_factors, double* sums, float* scales);

// Computes the scales of given factors, as AdafactorFactors does.
Status ScalesOfFactors(const FactorShape& shape, const float* factors, float* scales);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_ADAFACTOR_ADAFACTOR_H_
