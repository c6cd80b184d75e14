#include "kernels/cuda/multi_tensor.cuh"
#include "kernels/lion/lion_cuda.h"
#include "kernels/lion/lion_rule.h"

namespace geminid::kernels {

Status LionStepCuda(const LionOptions& options, const CudaTensor* tensors, size_t tensor_count,
                    CudaStream stream) {
  return cuda::Step<LionRule>(options, tensors, tensor_count, stream);
}

}  // namespace geminid::kernels
