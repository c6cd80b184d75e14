#include "kernels/optimizers/adam/adam_cuda.h"
#include "kernels/optimizers/adam/adam_rule.h"
#include "kernels/optimizers/step/update.cuh"

namespace geminid::kernels {
namespace cuda {
GEMINID_UPDATE_KERNELS(adam, PlainRule<AdamRule>);
}  // namespace cuda

Status AdamStepCuda(const AdamWOptions& options, const CudaTensor& tensor, CudaStream stream) {
  return cuda::Step<AdamRule>(options, tensor, stream);
}

}  // namespace geminid::kernels
