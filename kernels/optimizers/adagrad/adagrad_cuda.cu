#include "kernels/optimizers/adagrad/adagrad_cuda.h"
#include "kernels/optimizers/adagrad/adagrad_rule.h"
#include "kernels/optimizers/step/multi_tensor.cuh"

namespace geminid::kernels {
namespace cuda {
GEMINID_UPDATE_KERNELS(adagrad, PlainRule<AdagradRule>);
}  // namespace cuda

Status AdagradStepCuda(const AdagradOptions& options, const CudaTensor* tensors,
                       size_t tensor_count, CudaStream stream) {
  return cuda::Step<AdagradRule>(options, tensors, tensor_count, stream);
}

}  // namespace geminid::kernels
