#ifndef GEMINID_KERNELS_ADAMW_ADAMW_CUDA_H_
#define GEMINID_KERNELS_ADAMW_ADAMW_CUDA_H_

#include <cstddef>

#include "kernels/adamw/adamw.h"
#include "kernels/common/status.h"
#include "kernels/cuda/tensor.h"

// AdamW on a GPU, many tensors a launch, with the bits of kernels/adamw/adamw.h, which says the
// rest. The states are exp_avg and exp_avg_sq. `tensors` is read before the call returns; an error
// is of the whole call, and nothing is queued.
namespace geminid::kernels {

template <class Weight, typename Gradient>
using AdamWTensor = cuda::Tensor<Weight, Gradient, 2>;

Status AdamWCuda(const AdamWOptions& options,
                 const AdamWTensor<cuda::SplitWeight, BFloat16>* tensors, size_t tensor_count,
                 CudaStream stream);
Status AdamWCuda(const AdamWOptions& options, const AdamWTensor<cuda::SplitWeight, float>* tensors,
                 size_t tensor_count, CudaStream stream);
Status AdamWCuda(const AdamWOptions& options,
                 const AdamWTensor<cuda::MasterWeight<void>, float>* tensors, size_t tensor_count,
                 CudaStream stream);
Status AdamWCuda(const AdamWOptions& options,
                 const AdamWTensor<cuda::MasterWeight<Float16>, Float16>* tensors,
                 size_t tensor_count, CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_ADAMW_ADAMW_CUDA_H_
