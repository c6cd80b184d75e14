#include "kernels/optimizers/adamw/adamw_cuda.h"
#include "kernels/optimizers/adamw/adamw_rule.h"
#include "kernels/optimizers/step/update.cuh"

namespace geminid::kernels {
namespace cuda {
GEMINID_UPDATE_KERNELS(adamw, PlainRule<AdamWRule>);
}  // namespace cuda

Status AdamWStepCuda(const AdamWOptions& options, const CudaTensor& tensor, CudaStream stream) {
  return cuda::Step<AdamWRule>(options, tensor, stream);
}

}  // namespace geminid::kernels
