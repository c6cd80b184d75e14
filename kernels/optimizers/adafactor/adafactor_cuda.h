#ifndef GEMINID_KERNELS_OPTIMIZERS_ADAFACTOR_ADAFACTOR_CUDA_H_
#define GEMINID_KERNELS_OPTIMIZERS_ADAFACTOR_ADAFACTOR_CUDA_H_

#include <cstddef>
#include <cstdint>

#include "kernels/optimizers/adafactor/adafactor.h"
#include "kernels/optimizers/step/cuda_tensor.h"
#include "kernels/runtime/common/status.h"

// The passes of Adafactor (kernels/optimizers/adafactor/adafactor.h) over a part of a tensor on a
// GPU, with the same bits. Sums, scales and norms are on the device. Between the passes
// AverageFactorsCuda (kernels/optimizers/adafactor/factors_cuda.h) or the host computes factors and
// scales from the sums of all ranks.
namespace geminid::kernels {

// Bytes of device workspace, which a pass overwrites; kInvalidParameter for a smaller workspace.
size_t FactorWorkspaceBytes(const FactorShape& shape, uint64_t offset, size_t count);

Status AdafactorAddSquaresCuda(const AdafactorOptions& options, const FactorShape& shape,
                               uint64_t offset, const ConstParameterArrays& arrays,
                               const GradientArray& gradient, size_t count, double* workspace,
                               size_t workspace_bytes, double* sums, AdafactorNorms* norms,
                               CudaStream stream);

Status AdafactorAddUpdateSquaresCuda(const AdafactorOptions& options, const FactorShape& shape,
                                     uint64_t offset, const float* scales,
                                     const GradientArray& gradient, size_t count, double* workspace,
                                     size_t workspace_bytes, AdafactorNorms* norms,
                                     CudaStream stream);

// `norms` is on the host and complete.
Status AdafactorApplyCuda(const AdafactorOptions& options, const FactorShape& shape,
                          uint64_t offset, const float* scales, const AdafactorNorms& norms,
                          const CudaTensor& tensor, CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_ADAFACTOR_ADAFACTOR_CUDA_H_
