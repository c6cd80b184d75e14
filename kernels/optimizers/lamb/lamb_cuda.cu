#include "kernels/optimizers/lamb/lamb_cuda.h"
#include "kernels/optimizers/lamb/lamb_rule.h"
#include "kernels/optimizers/step/measure.cuh"

namespace geminid::kernels {
namespace cuda {
GEMINID_MEASURE_KERNELS(lamb, PlainRule<LambUpdateRule>);
GEMINID_UPDATE_KERNELS(lamb, PlainRule<LambRule>);
}  // namespace cuda

size_t LambWorkspaceBytes(size_t count) { return cuda::NormsWorkspaceBytes(count); }

Status LambAddNormsCuda(const LambOptions& options, const ConstParameterArrays& arrays,
                        const GradientArray& gradient, size_t count, double* workspace,
                        size_t workspace_bytes, LambNorms* norms, CudaStream stream) {
  if (norms == nullptr) return Status::kNullPointer;
  LambUpdateRule rule;
  Status status = MakeRule(options, &rule);
  if (status == Status::kOk) status = CheckReadArrays(arrays, gradient, count, rule.kStates);
  if (status != Status::kOk || count == 0) return status;
  return cuda::Measure<cuda::Columns::kNone>(
      cuda::PlainRule<LambUpdateRule>{rule}, {arrays, gradient, cuda::RowBlocks(count, 0, count)},
      workspace, workspace_bytes,
      {.result = &norms->update_squares, .weight = &norms->weight_squares}, stream);
}

Status LambApplyCuda(const LambOptions& options, const LambNorms& norms, const CudaTensor& tensor,
                     CudaStream stream) {
  LambRule rule;
  const Status status = MakeRule(options, norms, &rule);
  return status == Status::kOk ? cuda::CheckAndUpdate(rule, tensor, stream) : status;
}

}  // namespace geminid::kernels
