#ifndef GEMINID_KERNELS_MODEL_DROPOUT_DROPOUT_CUDA_H_
#define GEMINID_KERNELS_MODEL_DROPOUT_DROPOUT_CUDA_H_

#include <cstddef>
#include <cstdint>

#include "kernels/model/dropout/dropout.h"
#include "kernels/runtime/common/status.h"
#include "kernels/runtime/cuda/stream.h"

// Dropout on a GPU. Element i of the arrays is element `first` + i of the pattern. Products and
// sums are formed in fp32 and rounded once.
namespace geminid::kernels {

// y = x times the factors; y may be x.
template <typename T>
Status DropoutCuda(const DropoutPattern& pattern, uint64_t first, size_t count, const T* x, T* y,
                   CudaStream stream);
// sum += x times the factors.
template <typename T>
Status AddDropoutCuda(const DropoutPattern& pattern, uint64_t first, size_t count, const T* x,
                      T* sum, CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_DROPOUT_DROPOUT_CUDA_H_
