#include "kernels/optimizers/lamb/lamb_cuda.h"
#include "kernels/optimizers/lamb/lamb_rule.h"
#include "kernels/optimizers/step/measure.cuh"

namespace geminid::kernels {

size_t LambWorkspaceBytes(size_t count) { return cuda::NormsWorkspaceBytes(count); }

Status LambAddNormsCuda(const LambOptions& options, const ConstParameterArrays& arrays,
                        const GradientArray& gradient, size_t count, double* workspace,
                        size_t workspace_bytes, LambNorms* norms, CudaStream stream) {
  if (norms == nullptr) return Status::kNullPointer;
  LambUpdateRule rule;
  const Status status = MakeRule(options, &rule);
  if (status != Status::kOk) return status;
  return cuda::MeasureNorms(rule, arrays, gradient, count, workspace, workspace_bytes,
                            &norms->update_squares, &norms->weight_squares, stream);
}

Status LambApplyCuda(const LambOptions& options, const LambNorms* norms, const CudaTensor* tensors,
                     size_t tensor_count, CudaStream stream) {
  return cuda::StepWithNorms<LambRule>(options, norms, tensors, tensor_count, stream);
}

}  // namespace geminid::kernels
