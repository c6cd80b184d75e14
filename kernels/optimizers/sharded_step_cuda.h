#ifndef GEMINID_KERNELS_OPTIMIZERS_SHARDED_STEP_CUDA_H_
#define GEMINID_KERNELS_OPTIMIZERS_SHARDED_STEP_CUDA_H_

#include "kernels/optimizers/sharded_step.h"
#include "kernels/runtime/common/status.h"
#include "kernels/runtime/cuda/stream.h"

namespace geminid::kernels {

// ShardedStep::Apply of a segment that lies on a GPU, with its bits, of optimizers that step each
// element by itself. kUnsupported, with nothing queued, of the others and of what Apply copies.
Status ApplyCuda(const ShardedStep& step, const Segment& segment, const ParameterArrays& new_arrays,
                 CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_SHARDED_STEP_CUDA_H_
