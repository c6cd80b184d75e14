// The table of kernels (model_kernels.h) for a model on a GPU.
#ifndef GEMINID_TRAINING_NN_GPU_KERNELS_H_
#define GEMINID_TRAINING_NN_GPU_KERNELS_H_

#include "kernels/model/attention/attention_library_cuda.h"
#include "kernels/model/matmul/matmul_library_cuda.h"
#include "training/nn/gpu_queue.h"
#include "training/nn/model_kernels.h"

namespace geminid::trainer {

// The libraries that compute parts of a model; either is nullable.
struct GpuLibraries {
  kernels::MatmulLibrary* products = nullptr;
  kernels::AttentionLibrary* attention = nullptr;
};

// Kernels that run on `queue`, without threads. Products and attention use a library unless it is
// missing, has no algorithm or failed its test, or rows must not depend on each other. Then they
// use the kernels of kernels/model. Queue and libraries outlive the kernels.
ModelKernels GpuKernels(GpuQueue* queue, const GpuLibraries& libraries);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_NN_GPU_KERNELS_H_
