#ifndef GEMINID_KERNELS_NUMERIC_ACCUMULATE_ACCUMULATE_CUDA_H_
#define GEMINID_KERNELS_NUMERIC_ACCUMULATE_ACCUMULATE_CUDA_H_

#include <cstddef>

#include "kernels/runtime/common/bfloat16.h"
#include "kernels/runtime/common/status.h"
#include "kernels/runtime/cuda/stream.h"

namespace geminid::kernels {

// kernels/numeric/accumulate on a GPU, with the same bits.
Status AccumulateCuda(const BFloat16* gradient, float scale, size_t count, float* accumulator,
                      CudaStream stream);
Status AccumulateCuda(const float* gradient, float scale, size_t count, float* accumulator,
                      CudaStream stream);

// sum[i] += values[i], formed in fp32 and rounded once to the type of `sum`, to nearest even. A NaN
// stays one. The arrays are disjoint; element alignment suffices.
Status AddCuda(const float* values, size_t count, float* sum, CudaStream stream);
Status AddCuda(const BFloat16* values, size_t count, float* sum, CudaStream stream);
Status AddCuda(const float* values, size_t count, BFloat16* sum, CudaStream stream);
Status AddCuda(const BFloat16* values, size_t count, BFloat16* sum, CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_NUMERIC_ACCUMULATE_ACCUMULATE_CUDA_H_
