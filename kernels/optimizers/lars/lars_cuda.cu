#include "kernels/optimizers/lars/lars_cuda.h"
#include "kernels/optimizers/lars/lars_rule.h"
#include "kernels/optimizers/step/measure.cuh"

namespace geminid::kernels {
namespace cuda {
GEMINID_UPDATE_KERNELS(lars, PlainRule<LarsRule>);
}  // namespace cuda

size_t LarsWorkspaceBytes(size_t count) { return cuda::NormsWorkspaceBytes(count); }

Status LarsAddNormsCuda(const LarsOptions& options, const ConstParameterArrays& arrays,
                        const GradientArray& gradient, size_t count, double* workspace,
                        size_t workspace_bytes, LarsNorms* norms, CudaStream stream) {
  if (norms == nullptr) return Status::kNullPointer;
  Status status = CheckLarsOptions(options);
  if (status == Status::kOk) status = CheckReadArrays(arrays, gradient, count, 0);
  if (status != Status::kOk || count == 0) return status;
  return cuda::MeasureScaledGradients(
      static_cast<float>(options.grad_scale), {arrays, gradient, cuda::RowBlocks(count, 0, count)},
      workspace, workspace_bytes,
      {.result = &norms->gradient_squares, .weight = &norms->weight_squares}, stream);
}

Status LarsApplyCuda(const LarsOptions& options, const LarsNorms& norms, const CudaTensor& tensor,
                     CudaStream stream) {
  LarsRule rule;
  const Status status = MakeRule(options, norms, &rule);
  return status == Status::kOk ? cuda::CheckAndUpdate(rule, tensor, stream) : status;
}

}  // namespace geminid::kernels
