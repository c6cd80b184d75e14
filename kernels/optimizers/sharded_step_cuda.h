#ifndef GEMINID_KERNELS_OPTIMIZERS_SHARDED_STEP_CUDA_H_
#define GEMINID_KERNELS_OPTIMIZERS_SHARDED_STEP_CUDA_H_

#include "kernels/optimizers/sharded_step.h"
#include "kernels/runtime/common/status.h"
#include "kernels/runtime/cuda/stream.h"

namespace geminid::kernels {

// Device memory, or host memory that the device reaches, that AddNormsCuda overwrites.
size_t NormsWorkspaceBytes(size_t count);

// ShardedStep::AddNorms of a segment that lies on a GPU, with its bits; `workspace` and `two` are
// where the device reaches them. kUnsupported, with nothing queued, of other optimizers.
Status AddNormsCuda(const ShardedStep& step, const Segment& segment, double* workspace,
                    size_t workspace_bytes, double* two, CudaStream stream);

// ShardedStep::Apply of a segment that lies on a GPU, with its bits. kUnsupported, with nothing
// queued, of Adafactor and CAME, whose scales are on the host, and of what Apply copies or refuses.
Status ApplyCuda(const ShardedStep& step, const Segment& segment, const ParameterArrays& new_arrays,
                 CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_SHARDED_STEP_CUDA_H_
