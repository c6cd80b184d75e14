#ifndef GEMINID_KERNELS_OPTIMIZERS_LARS_LARS_CUDA_H_
#define GEMINID_KERNELS_OPTIMIZERS_LARS_LARS_CUDA_H_

#include <cstddef>

#include "kernels/optimizers/lars/lars.h"
#include "kernels/optimizers/step/cuda_tensor.h"
#include "kernels/runtime/common/status.h"

// LARS (kernels/optimizers/lars/lars.h) on a GPU, with its bits.
namespace geminid::kernels {

// Device memory that LarsAddNormsCuda overwrites.
size_t LarsWorkspaceBytes(size_t count);

// Adds a part of a tensor to *norms, on the device. kInvalidParameter also for a workspace that is
// too small.
Status LarsAddNormsCuda(const LarsOptions& options, const ConstParameterArrays& arrays,
                        const GradientArray& gradient, size_t count, double* workspace,
                        size_t workspace_bytes, LarsNorms* norms, CudaStream stream);

// Steps parts of tensors whose sums are complete: norms[t], on the device, is of tensors[t]. So
// nothing waits for the host; a sum over ranks may come between on the same stream. `factors`, a
// float per tensor on the device, is overwritten. Where the host's step would refuse what the norms
// make of the options, as not finite, the weights become NaN.
Status LarsApplyCuda(const LarsOptions& options, const LarsNorms* norms, const CudaTensor* tensors,
                     size_t tensor_count, float* factors, CudaStream stream);

// The same of one tensor whose norms the host has: it refuses what the host's step does.
Status LarsApplyTensorCuda(const LarsOptions& options, const LarsNorms& norms,
                           const CudaTensor& tensor, CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_LARS_LARS_CUDA_H_
