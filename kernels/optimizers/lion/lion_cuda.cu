#include "kernels/optimizers/lion/lion_cuda.h"
#include "kernels/optimizers/lion/lion_rule.h"
#include "kernels/optimizers/step/update.cuh"

namespace geminid::kernels {
namespace cuda {
GEMINID_UPDATE_KERNELS(lion, PlainRule<LionRule>);
}  // namespace cuda

Status LionStepCuda(const LionOptions& options, const CudaTensor& tensor, CudaStream stream) {
  return cuda::Step<LionRule>(options, tensor, stream);
}

}  // namespace geminid::kernels
