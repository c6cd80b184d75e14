#ifndef GEMINID_KERNELS_OPTIMIZERS_CAME_CAME_CUDA_H_
#define GEMINID_KERNELS_OPTIMIZERS_CAME_CAME_CUDA_H_

#include <cstddef>
#include <cstdint>

#include "kernels/optimizers/came/came.h"
#include "kernels/optimizers/step/cuda_tensor.h"
#include "kernels/runtime/common/status.h"

// The passes of CAME (kernels/optimizers/came/came.h) over a part of a tensor on a GPU, with the
// same bits. Sums, scales and update_squares are on the device. For factors and workspace see
// kernels/optimizers/adafactor/adafactor_cuda.h.
namespace geminid::kernels {

Status CameAddSquaresCuda(const CameOptions& options, const FactorShape& shape, uint64_t offset,
                          const GradientArray& gradient, size_t count, double* workspace,
                          size_t workspace_bytes, double* sums, CudaStream stream);

Status CameAddUpdateSquaresCuda(const CameOptions& options, const FactorShape& shape,
                                uint64_t offset, const float* scales, const GradientArray& gradient,
                                size_t count, double* workspace, size_t workspace_bytes,
                                double* update_squares, CudaStream stream);

// `update_squares`, here and below, is on the host and complete.
Status CameAddResidualSquaresCuda(const CameOptions& options, const FactorShape& shape,
                                  uint64_t offset, const float* scales, double update_squares,
                                  const ConstParameterArrays& arrays, const GradientArray& gradient,
                                  size_t count, double* workspace, size_t workspace_bytes,
                                  double* sums, CudaStream stream);

Status CameApplyCuda(const CameOptions& options, const FactorShape& shape, uint64_t offset,
                     const float* scales, double update_squares, const CudaTensor& tensor,
                     CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_CAME_CAME_CUDA_H_
