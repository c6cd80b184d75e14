#include "kernels/optimizers/adamw/adamw_cuda.h"
#include "kernels/optimizers/adamw/adamw_rule.h"
#include "kernels/optimizers/step/multi_tensor.cuh"

namespace geminid::kernels {
namespace cuda {
GEMINID_UPDATE_KERNELS(adamw, PlainRule<AdamWRule>);
}  // namespace cuda

Status AdamWStepCuda(const AdamWOptions& options, const CudaTensor* tensors, size_t tensor_count,
                     CudaStream stream) {
  return cuda::Step<AdamWRule>(options, tensors, tensor_count, stream);
}

}  // namespace geminid::kernels
