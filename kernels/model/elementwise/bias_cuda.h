#ifndef GEMINID_KERNELS_MODEL_ELEMENTWISE_BIAS_CUDA_H_
#define GEMINID_KERNELS_MODEL_ELEMENTWISE_BIAS_CUDA_H_

#include <cstddef>

#include "kernels/runtime/common/status.h"
#include "kernels/runtime/cuda/stream.h"

// kernels/model/elementwise/bias.h on a GPU.
namespace geminid::kernels {

// The bits are those of BiasAdd.
template <typename T>
Status BiasAddCuda(size_t rows, size_t cols, const T* bias, T* x, CudaStream stream);

// Bytes of workspace on the device for ColumnSumCuda.
size_t ColumnSumCudaWorkspaceBytes(size_t rows, size_t cols);

// ColumnSum with the rows added in another order, which the shape fixes
// (kernels/runtime/cuda/column_sums.cuh). The bits are the same on every run and GPU; they differ
// from the host's by the rounding of fp32 sums. `workspace` is 64-byte aligned.
template <typename T>
Status ColumnSumCuda(size_t rows, size_t cols, const T* x, T* out, bool accumulate, void* workspace,
                     size_t workspace_bytes, CudaStream stream);

// ColumnSumCuda whose sums stay fp32.
template <typename T>
Status ColumnSumWideCuda(size_t rows, size_t cols, const T* x, float* out, void* workspace,
                         size_t workspace_bytes, CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_ELEMENTWISE_BIAS_CUDA_H_
