#ifndef GEMINID_KERNELS_MODEL_ELEMENTWISE_TRANSPOSE_CUDA_H_
#define GEMINID_KERNELS_MODEL_ELEMENTWISE_TRANSPOSE_CUDA_H_

#include <cstddef>

#include "kernels/runtime/common/status.h"
#include "kernels/runtime/cuda/stream.h"

// kernels/model/elementwise/transpose.h on a GPU, with the bits of the host.
namespace geminid::kernels {

template <typename From, typename To>
Status TransposeMatrixCuda(size_t rows, size_t cols, const From* from, To* to, CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_ELEMENTWISE_TRANSPOSE_CUDA_H_
