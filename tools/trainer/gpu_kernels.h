// The model's arithmetic on a GPU.
#ifndef GEMINID_TOOLS_TRAINER_GPU_KERNELS_H_
#define GEMINID_TOOLS_TRAINER_GPU_KERNELS_H_

#include "kernels/model/matmul/matmul_library_cuda.h"
#include "tools/trainer/gpu_queue.h"
#include "tools/trainer/model_kernels.h"

namespace geminid::trainer {

// Kernels that are queued on `queue`; threads are not used. Products are those of `library`, which
// is nullable, and where there is none, it has no algorithm, or rows must not depend on each other,
// those of kernels/model/matmul/matmul_cuda.h. Queue and library outlive them.
ModelKernels GpuKernels(GpuQueue* queue, kernels::MatmulLibrary* library);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_GPU_KERNELS_H_
