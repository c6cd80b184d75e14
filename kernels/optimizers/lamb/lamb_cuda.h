#ifndef GEMINID_KERNELS_OPTIMIZERS_LAMB_LAMB_CUDA_H_
#define GEMINID_KERNELS_OPTIMIZERS_LAMB_LAMB_CUDA_H_

#include <cstddef>

#include "kernels/optimizers/lamb/lamb.h"
#include "kernels/optimizers/step/cuda_tensor.h"
#include "kernels/runtime/common/status.h"

// LAMB (kernels/optimizers/lamb/lamb.h) on a GPU, with the same bits.
namespace geminid::kernels {

// Bytes of device workspace, which LambAddNormsCuda overwrites.
size_t LambWorkspaceBytes(size_t count);

// Adds a part of a tensor to *norms, on the device. kInvalidParameter also for a workspace that is
// too small.
Status LambAddNormsCuda(const LambOptions& options, const ConstParameterArrays& arrays,
                        const GradientArray& gradient, size_t count, double* workspace,
                        size_t workspace_bytes, LambNorms* norms, CudaStream stream);

// Steps a part of a tensor whose sums are complete, and on the host.
Status LambApplyCuda(const LambOptions& options, const LambNorms& norms, const CudaTensor& tensor,
                     CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_LAMB_LAMB_CUDA_H_
