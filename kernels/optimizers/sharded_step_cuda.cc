#include "kernels/optimizers/sharded_step_cuda.h"

#include <optional>

#include "kernels/optimizers/adagrad/adagrad_cuda.h"
#include "kernels/optimizers/adam/adam_cuda.h"
#include "kernels/optimizers/adamw/adamw_cuda.h"
#include "kernels/optimizers/lion/lion_cuda.h"
#include "kernels/optimizers/sgd/sgd_cuda.h"

namespace geminid::kernels {

Status ApplyCuda(const ShardedStep& step, const Segment& segment, const ParameterArrays& new_arrays,
                 CudaStream stream) {
  const std::optional<OptimizerOptions> options = step.ElementwiseOptions(segment);
  if (!options.has_value()) return Status::kUnsupported;
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
    default:
      return Status::kUnsupported;
  }
}

}  // namespace geminid::kernels
