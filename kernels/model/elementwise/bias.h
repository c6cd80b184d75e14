// Bias addition and its gradient. T is float or BFloat16.
#ifndef GEMINID_KERNELS_MODEL_ELEMENTWISE_BIAS_H_
#define GEMINID_KERNELS_MODEL_ELEMENTWISE_BIAS_H_

#include <cstddef>

#include "kernels/runtime/common/bfloat16.h"
#include "kernels/runtime/common/status.h"

namespace geminid::kernels {

// x[r,c] += bias[c] for x[rows,cols], added in fp32 and rounded once. Matmul can add a linear
// layer's bias itself; BiasAdd is for layers that sum over ranks before they add the bias.
template <typename T>
Status BiasAdd(size_t rows, size_t cols, const T* bias, T* x);

// Bytes of workspace for ColumnSum: one fp32 row, rounded up to 64 bytes.
size_t ColumnSumWorkspaceBytes(size_t cols);

// out[c] (+)= sum over r of x[r,c], summed in fp32 in row order and rounded once: the gradient of a
// bias. `workspace` is 64-byte aligned.
template <typename T>
Status ColumnSum(size_t rows, size_t cols, const T* x, T* out, bool accumulate, void* workspace,
                 size_t workspace_bytes);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_ELEMENTWISE_BIAS_H_
