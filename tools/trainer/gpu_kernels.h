// The model's arithmetic on a GPU.
#ifndef GEMINID_TOOLS_TRAINER_GPU_KERNELS_H_
#define GEMINID_TOOLS_TRAINER_GPU_KERNELS_H_

#include "tools/trainer/gpu_queue.h"
#include "tools/trainer/model_kernels.h"

namespace geminid::trainer {

// Kernels that are queued on `queue`, which outlives them; threads are not used. Products are those
// of kernels/model/matmul/matmul_cuda.h, so that rows never depend on each other.
ModelKernels GpuKernels(GpuQueue* queue);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_GPU_KERNELS_H_
