#include "kernels/optimizers/lion/lion_cuda.h"
#include "kernels/optimizers/lion/lion_rule.h"
#include "kernels/optimizers/step/multi_tensor.cuh"

namespace geminid::kernels {
namespace cuda {
GEMINID_UPDATE_KERNELS(lion, PlainRule<LionRule>);
}  // namespace cuda

Status LionStepCuda(const LionOptions& options, const CudaTensor* tensors, size_t tensor_count,
                    CudaStream stream) {
  return cuda::Step<LionRule>(options, tensors, tensor_count, stream);
}

}  // namespace geminid::kernels
