#include "kernels/optimizers/lars/lars_cuda.h"
#include "kernels/optimizers/lars/lars_rule.h"
#include "kernels/optimizers/step/measure.cuh"

namespace geminid::kernels {

size_t LarsWorkspaceBytes(size_t count) { return cuda::NormsWorkspaceBytes(count); }

Status LarsAddNormsCuda(const LarsOptions& options, const ConstParameterArrays& arrays,
                        const GradientArray& gradient, size_t count, double* workspace,
                        size_t workspace_bytes, LarsNorms* norms, CudaStream stream) {
  if (norms == nullptr) return Status::kNullPointer;
  const Status status = CheckLarsOptions(options);
  if (status != Status::kOk) return status;
  const ScaledGradientRule rule{static_cast<float>(options.grad_scale)};
  return cuda::MeasureNorms(rule, arrays, gradient, count, workspace, workspace_bytes,
                            &norms->gradient_squares, &norms->weight_squares, stream);
}

Status LarsApplyCuda(const LarsOptions& options, const LarsNorms* norms, const CudaTensor* tensors,
                     size_t tensor_count, CudaStream stream) {
  return cuda::StepWithNorms<LarsRule>(options, norms, tensors, tensor_count, stream);
}

}  // namespace geminid::kernels
