#include "kernels/optimizers/adagrad/adagrad_cuda.h"
#include "kernels/optimizers/adagrad/adagrad_rule.h"
#include "kernels/optimizers/step/update.cuh"

namespace geminid::kernels {
namespace cuda {
GEMINID_UPDATE_KERNELS(adagrad, PlainRule<AdagradRule>);
}  // namespace cuda

Status AdagradStepCuda(const AdagradOptions& options, const CudaTensor& tensor, CudaStream stream) {
  return cuda::Step<AdagradRule>(options, tensor, stream);
}

}  // namespace geminid::kernels
