#ifndef GEMINID_KERNELS_OPTIMIZERS_LARS_LARS_CUDA_H_
#define GEMINID_KERNELS_OPTIMIZERS_LARS_LARS_CUDA_H_

#include <cstddef>

#include "kernels/optimizers/lars/lars.h"
#include "kernels/optimizers/step/cuda_tensor.h"
#include "kernels/runtime/common/status.h"

// LARS (kernels/optimizers/lars/lars.h) on a GPU, with the same bits.
namespace geminid::kernels {

// Bytes of device workspace, which LarsAddNormsCuda overwrites.
size_t LarsWorkspaceBytes(size_t count);

// Adds a part of a tensor to *norms, on the device. kInvalidParameter also for a workspace that is
// too small.
Status LarsAddNormsCuda(const LarsOptions& options, const ConstParameterArrays& arrays,
                        const GradientArray& gradient, size_t count, double* workspace,
                        size_t workspace_bytes, LarsNorms* norms, CudaStream stream);

// Steps a part of a tensor whose sums are complete, and on the host.
Status LarsApplyCuda(const LarsOptions& options, const LarsNorms& norms, const CudaTensor& tensor,
                     CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_LARS_LARS_CUDA_H_
