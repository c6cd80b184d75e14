#include "kernels/optimizers/adam/adam_cuda.h"
#include "kernels/optimizers/adam/adam_rule.h"
#include "kernels/optimizers/step/multi_tensor.cuh"

namespace geminid::kernels {
namespace cuda {
GEMINID_UPDATE_KERNELS(adam, PlainRule<AdamRule>);
}  // namespace cuda

Status AdamStepCuda(const AdamWOptions& options, const CudaTensor* tensors, size_t tensor_count,
                    CudaStream stream) {
  return cuda::Step<AdamRule>(options, tensors, tensor_count, stream);
}

}  // namespace geminid::kernels
