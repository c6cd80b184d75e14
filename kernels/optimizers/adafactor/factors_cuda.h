#ifndef GEMINID_KERNELS_OPTIMIZERS_ADAFACTOR_FACTORS_CUDA_H_
#define GEMINID_KERNELS_OPTIMIZERS_ADAFACTOR_FACTORS_CUDA_H_

#include <cstdint>

#include "kernels/optimizers/adafactor/factors.h"
#include "kernels/runtime/common/status.h"
#include "kernels/runtime/cuda/stream.h"

namespace geminid::kernels {

// AverageFactors (kernels/optimizers/adafactor/factor_passes.h) on a GPU, with the bits of the
// host: new = kept old + (1 - kept) (mean of squares + epsilon), and the scales. The sums are
// complete. Factors may be in place; `row_mean`, one number, is overwritten. The device can access
// all arrays. One thread adds the rows' mean, in the order of the rows.
Status AverageFactorsCuda(const FactorShape& shape, double kept, double epsilon, const double* sums,
                          const float* old_factors, float* new_factors, float* scales,
                          double* row_mean, CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_ADAFACTOR_FACTORS_CUDA_H_
