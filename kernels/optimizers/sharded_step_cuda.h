#ifndef GEMINID_KERNELS_OPTIMIZERS_SHARDED_STEP_CUDA_H_
#define GEMINID_KERNELS_OPTIMIZERS_SHARDED_STEP_CUDA_H_

#include "kernels/optimizers/sharded_step.h"
#include "kernels/runtime/common/status.h"
#include "kernels/runtime/cuda/stream.h"

namespace geminid::kernels {

// Bytes of workspace for AddSumsCuda, in device memory or in host memory that the device can
// access. 0 for segments that are not trained.
size_t SumsWorkspaceBytes(const ShardedStep& step, const Segment& segment);

// ShardedStep::AddSums of a trained segment that lies on a GPU, with the same bits. The device can
// access `workspace` and `sums`. `scales`, on the device, are those of all tensors; the first pass
// needs none. kUnsupported, with nothing queued, if a pass that needs scales has none, and for
// elementwise optimizers.
Status AddSumsCuda(const ShardedStep& step, SumPass pass, const Segment& segment,
                   const float* scales, double* workspace, size_t workspace_bytes, double* sums,
                   CudaStream stream);

// ShardedStep::MakeFactors, and the scales of the same tensors, with the same bits. The device can
// access all arrays; `row_means`, one number per tensor, is overwritten. kUnsupported, with nothing
// queued, if there are no kernels for it.
Status MakeFactorsCuda(const ShardedStep& step, SumPass pass, const double* sums,
                       const float* old_factors, float* new_factors, float* scales,
                       double* row_means, CudaStream stream);

// ShardedStep::Apply of a segment that lies on a GPU, with the same bits. kUnsupported, with
// nothing queued, for Adafactor and CAME while the step has no device_scales(), and for segments
// that Apply copies or refuses.
Status ApplyCuda(const ShardedStep& step, const Segment& segment, const ParameterArrays& new_arrays,
                 CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_SHARDED_STEP_CUDA_H_
