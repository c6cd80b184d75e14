#ifndef GEMINID_KERNELS_MODEL_CROSS_ENTROPY_CROSS_ENTROPY_PART_CUDA_H_
#define GEMINID_KERNELS_MODEL_CROSS_ENTROPY_CROSS_ENTROPY_PART_CUDA_H_

#include <cstdint>

#include "kernels/model/cross_entropy/cross_entropy_part.h"
#include "kernels/runtime/common/status.h"
#include "kernels/runtime/cuda/stream.h"

// kernels/model/cross_entropy/cross_entropy_part.h on a GPU. The bits are those of a host that has
// FMA, but for the gradient at the target, which is made of an exponential of another library. The
// targets are in device memory.
namespace geminid::kernels {

Status CrossEntropyPartMaxCuda(const CrossEntropyPart& part, const float* logits, float* max,
                               CudaStream stream);

Status CrossEntropyPartSumsCuda(const CrossEntropyPart& part, const float* logits,
                                const int32_t* targets, const float* max, float* sums,
                                float* at_target, CudaStream stream);

Status CrossEntropyPartGradientCuda(const CrossEntropyPart& part, const float* logits,
                                    const int32_t* targets, const float* max, const float* sums,
                                    float grad_scale, float* dlogits, CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_CROSS_ENTROPY_CROSS_ENTROPY_PART_CUDA_H_
