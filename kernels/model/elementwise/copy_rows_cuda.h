#ifndef GEMINID_KERNELS_MODEL_ELEMENTWISE_COPY_ROWS_CUDA_H_
#define GEMINID_KERNELS_MODEL_ELEMENTWISE_COPY_ROWS_CUDA_H_

#include <cstddef>

#include "kernels/runtime/common/status.h"
#include "kernels/runtime/cuda/stream.h"

namespace geminid::kernels {

// Copies `rows` rows of `cols` elements on a GPU, between matrices with row strides in elements.
// The matrices do not overlap, counted from the first to the last element.
template <typename T>
Status CopyRowsCuda(size_t rows, size_t cols, const T* from, size_t from_stride, T* to,
                    size_t to_stride, CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_ELEMENTWISE_COPY_ROWS_CUDA_H_
