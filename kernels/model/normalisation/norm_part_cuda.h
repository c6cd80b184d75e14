#ifndef GEMINID_KERNELS_MODEL_NORMALISATION_NORM_PART_CUDA_H_
#define GEMINID_KERNELS_MODEL_NORMALISATION_NORM_PART_CUDA_H_

#include <cstddef>

#include "kernels/model/normalisation/norm_part.h"
#include "kernels/runtime/common/status.h"
#include "kernels/runtime/cuda/stream.h"

// kernels/model/normalisation/norm_part.h on a GPU. The bits are those of a host that has FMA, but
// for dgamma and dbeta, which differ by the order of their sums. That order depends on the shape
// alone (kernels/runtime/cuda/column_sums.cuh).
namespace geminid::kernels {

Status NormPartSumCuda(const NormPart& part, const float* x, float* sum, CudaStream stream);
Status NormPartSquaresCuda(const NormPart& part, const float* x, const float* mean, float* squares,
                           CudaStream stream);
Status NormPartMeansCuda(size_t rows, size_t columns, float* sums, CudaStream stream);
Status NormPartInverseRootsCuda(size_t rows, float epsilon, float* values, CudaStream stream);
Status NormPartForwardCuda(const NormPart& part, const float* x, const float* mean,
                           const float* rstd, const float* gamma, const float* beta, float* y,
                           CudaStream stream);
Status NormPartGradientSumsCuda(const NormPart& part, const NormPartBackwardArgs& args,
                                float* sum_gx, float* sum_g, CudaStream stream);

// Bytes of workspace on the device for NormPartBackwardCuda.
size_t NormPartCudaWorkspaceBytes(const NormPart& part);

// `workspace` is 64-byte aligned.
Status NormPartBackwardCuda(const NormPart& part, const NormPartBackwardArgs& args,
                            const float* mean_gx, const float* mean_g,
                            const NormPartGradients& gradients, void* workspace,
                            size_t workspace_bytes, CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_NORMALISATION_NORM_PART_CUDA_H_
