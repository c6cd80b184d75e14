#ifndef GEMINID_KERNELS_OPTIMIZERS_ADAFACTOR_FACTORS_CUDA_H_
#define GEMINID_KERNELS_OPTIMIZERS_ADAFACTOR_FACTORS_CUDA_H_

#include <cstdint>

#include "kernels/optimizers/adafactor/factors.h"
#include "kernels/runtime/common/status.h"
#include "kernels/runtime/cuda/stream.h"

namespace geminid::kernels {

// new = kept old + (1 - kept) (mean of squares + epsilon), and the scales that this means, on a
// GPU: the factors of Adafactor and CAME with the bits of the host. The sums are complete. Factors
// may be in place; `row_mean` is one number that is overwritten. The device reaches all of them.
// The mean of the rows is added by one thread, in their order.
Status AverageFactorsCuda(const FactorShape& shape, double kept, double epsilon, const double* sums,
                          const float* old_factors, float* new_factors, float* scales,
                          double* row_mean, CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_ADAFACTOR_FACTORS_CUDA_H_
