#ifndef GEMINID_KERNELS_MODEL_CROSS_ENTROPY_CROSS_ENTROPY_CUDA_H_
#define GEMINID_KERNELS_MODEL_CROSS_ENTROPY_CROSS_ENTROPY_CUDA_H_

#include <cstddef>
#include <cstdint>

#include "kernels/model/cross_entropy/cross_entropy.h"
#include "kernels/runtime/common/status.h"
#include "kernels/runtime/cuda/stream.h"

namespace geminid::kernels {

// Bytes of workspace on the device.
size_t CrossEntropyCudaWorkspaceBytes(const CrossEntropyShape& shape);

// CrossEntropy (kernels/model/cross_entropy/cross_entropy.h) on a GPU. dlogits has the bits of a
// host that has FMA, except in the target's column: there the float64 exponential rounds
// differently, as does the logarithm of a token's loss. Losses are added in float64, in an order
// that depends only on the number of tokens. `targets` are in device memory and are not checked. A
// target that is neither kIgnoredTarget nor in the vocabulary makes the loss NaN and its row of
// dlogits 0. `result` is in device memory or mapped host memory. `workspace` is 64-byte aligned.
template <typename T>
Status CrossEntropyCuda(const CrossEntropyShape& shape, const T* logits, const int32_t* targets,
                        float grad_scale, T* dlogits, float* token_loss, void* workspace,
                        size_t workspace_bytes, CrossEntropyResult* result, CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_CROSS_ENTROPY_CROSS_ENTROPY_CUDA_H_
