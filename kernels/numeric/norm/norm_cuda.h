#ifndef GEMINID_KERNELS_NUMERIC_NORM_NORM_CUDA_H_
#define GEMINID_KERNELS_NUMERIC_NORM_NORM_CUDA_H_

#include <cstddef>

#include "kernels/numeric/norm/norm.h"
#include "kernels/runtime/common/bfloat16.h"
#include "kernels/runtime/common/status.h"
#include "kernels/runtime/cuda/stream.h"

// AddSquares on a GPU, in the same order of additions: the bits are those of the host, so a norm
// does not depend on where a gradient lies.
//
// The device sums all blocks at the speed of memory. Then one block of threads folds their trees,
// eight at a time, while the rest of the device is free for the next work.
namespace geminid::kernels {

// The device memory that a call over `count` values writes: one double per block.
constexpr size_t SquareSumWorkspaceBytes(size_t count) {
  return (count + kNormBlock - 1) / kNormBlock * sizeof(double);
}

// Adds the squares of `count` values to *total, a double on the device. `workspace` is overwritten
// and must not be shared by calls on different streams. Errors as AddSquares, and
// kInvalidParameter for a workspace that is too small.
Status AddSquaresCuda(const BFloat16* values, size_t count, double* workspace,
                      size_t workspace_bytes, double* total, CudaStream stream);
Status AddSquaresCuda(const float* values, size_t count, double* workspace, size_t workspace_bytes,
                      double* total, CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_NUMERIC_NORM_NORM_CUDA_H_
