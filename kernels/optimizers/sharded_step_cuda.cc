#include "kernels/optimizers/sharded_step_cuda.h"

#include <algorithm>
#include <optional>

#include "kernels/optimizers/adagrad/adagrad_cuda.h"
#include "kernels/optimizers/adam/adam_cuda.h"
#include "kernels/optimizers/adamw/adamw_cuda.h"
#include "kernels/optimizers/lamb/lamb_cuda.h"
#include "kernels/optimizers/lars/lars_cuda.h"
#include "kernels/optimizers/lion/lion_cuda.h"
#include "kernels/optimizers/sgd/sgd_cuda.h"

namespace geminid::kernels {

// So that two numbers of the sums are either's norms.
static_assert(sizeof(LambNorms) == 2 * sizeof(double) && sizeof(LarsNorms) == sizeof(LambNorms));

size_t NormsWorkspaceBytes(size_t count) {
  return std::max(LambWorkspaceBytes(count), LarsWorkspaceBytes(count));
}

Status AddNormsCuda(const ShardedStep& step, const Segment& segment, double* workspace,
                    size_t workspace_bytes, double* two, CudaStream stream) {
  const std::optional<OptimizerOptions> options = step.OptionsFor(segment);
  if (!options.has_value()) return Status::kUnsupported;
  switch (options->kind) {
    case OptimizerKind::kLamb:
      return LambAddNormsCuda(options->lamb, segment.arrays, segment.gradient, segment.count,
                              workspace, workspace_bytes, reinterpret_cast<LambNorms*>(two),
                              stream);
    case OptimizerKind::kLars:
      return LarsAddNormsCuda(options->lars, segment.arrays, segment.gradient, segment.count,
                              workspace, workspace_bytes, reinterpret_cast<LarsNorms*>(two),
                              stream);
    default:
      return Status::kUnsupported;
  }
}

Status ApplyCuda(const ShardedStep& step, const Segment& segment, const ParameterArrays& new_arrays,
                 CudaStream stream) {
  const std::optional<OptimizerOptions> options = step.OptionsFor(segment);
  if (!step.ready() || !options.has_value()) return Status::kUnsupported;
  const double* const sums = step.TensorSums().data() + 2 * size_t{segment.tensor};
  const CudaTensor tensor = {segment.arrays, segment.gradient, segment.count, new_arrays};
  switch (options->kind) {
    case OptimizerKind::kAdamW:
      return AdamWStepCuda(options->adamw, &tensor, 1, stream);
    case OptimizerKind::kAdam:
      return AdamStepCuda(options->adamw, &tensor, 1, stream);
    case OptimizerKind::kSgd:
      return SgdStepCuda(options->sgd, &tensor, 1, stream);
    case OptimizerKind::kAdagrad:
      return AdagradStepCuda(options->adagrad, &tensor, 1, stream);
    case OptimizerKind::kLion:
      return LionStepCuda(options->lion, &tensor, 1, stream);
    case OptimizerKind::kLamb:
      return LambApplyTensorCuda(options->lamb, {sums[0], sums[1]}, tensor, stream);
    case OptimizerKind::kLars:
      return LarsApplyTensorCuda(options->lars, {sums[0], sums[1]}, tensor, stream);
    default:
      return Status::kUnsupported;
  }
}

}  // namespace geminid::kernels
