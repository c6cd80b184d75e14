#ifndef GEMINID_KERNELS_OPTIMIZERS_SHARDED_STEP_CUDA_H_
#define GEMINID_KERNELS_OPTIMIZERS_SHARDED_STEP_CUDA_H_

#include "kernels/optimizers/sharded_step.h"
#include "kernels/runtime/common/status.h"
#include "kernels/runtime/cuda/stream.h"

namespace geminid::kernels {

// Device memory, or host memory that the device reaches, that AddSumsCuda overwrites. 0 of what is
// not trained.
size_t SumsWorkspaceBytes(const ShardedStep& step, const Segment& segment);

// ShardedStep::AddSums of a trained segment that lies on a GPU, with its bits; `workspace` and
// `sums` are where the device reaches them. `scales` are those of all tensors, on the device; the
// first pass needs none. kUnsupported, with nothing queued, without scales where it does, and of
// elementwise optimizers.
Status AddSumsCuda(const ShardedStep& step, SumPass pass, const Segment& segment,
                   const float* scales, double* workspace, size_t workspace_bytes, double* sums,
                   CudaStream stream);

// ShardedStep::MakeFactors, and the scales of the same tensors, with its bits. The device reaches
// all arrays; `row_means`, one number per tensor, is overwritten. kUnsupported, with nothing
// queued, where there are no kernels.
Status MakeFactorsCuda(const ShardedStep& step, SumPass pass, const double* sums,
                       const float* old_factors, float* new_factors, float* scales,
                       double* row_means, CudaStream stream);

// ShardedStep::Apply of a segment that lies on a GPU, with its bits. kUnsupported, with nothing
// queued, of Adafactor and CAME while the step knows no scales on the device, and of what Apply
// copies or refuses.
Status ApplyCuda(const ShardedStep& step, const Segment& segment, const ParameterArrays& new_arrays,
                 CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_SHARDED_STEP_CUDA_H_
