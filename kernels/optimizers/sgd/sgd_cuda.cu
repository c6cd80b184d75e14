#include "kernels/optimizers/sgd/sgd_cuda.h"
#include "kernels/optimizers/sgd/sgd_rule.h"
#include "kernels/optimizers/step/update.cuh"

namespace geminid::kernels {
namespace cuda {
GEMINID_UPDATE_KERNELS(sgd, PlainRule<SgdRule>);
GEMINID_UPDATE_KERNELS(sgd_momentum, PlainRule<MomentumRule>);
}  // namespace cuda

Status SgdStepCuda(const SgdOptions& options, const CudaTensor& tensor, CudaStream stream) {
  SgdCoefficients k;
  const Status status = MakeCoefficients(options, &k);
  if (status != Status::kOk) return status;
  if (SgdStateArrays(options) == 0) {
    return cuda::CheckAndUpdate(SgdRule{k}, tensor, stream);
  }
  return cuda::CheckAndUpdate(MomentumRule{k}, tensor, stream);
}

}  // namespace geminid::kernels
