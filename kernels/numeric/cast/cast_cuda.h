#ifndef GEMINID_KERNELS_NUMERIC_CAST_CAST_CUDA_H_
#define GEMINID_KERNELS_NUMERIC_CAST_CAST_CUDA_H_

#include <cstddef>

#include "kernels/runtime/common/bfloat16.h"
#include "kernels/runtime/common/status.h"
#include "kernels/runtime/cuda/stream.h"

// The conversions between fp32 and bf16 of kernels/numeric/cast on a GPU, with the bits of the
// host. Exception: a NaN that is read as fp32 keeps its sign but may change its payload.
namespace geminid::kernels {

Status CastToBFloat16Cuda(const float* input, size_t count, BFloat16* output, CudaStream stream);
Status CastToFloatCuda(const BFloat16* input, size_t count, float* output, CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_NUMERIC_CAST_CAST_CUDA_H_
