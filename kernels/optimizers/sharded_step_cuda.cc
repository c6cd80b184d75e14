#include "kernels/optimizers/sharded_step_cuda.h"

#include <algorithm>
#include <optional>

#include "kernels/optimizers/adafactor/adafactor_cuda.h"
#include "kernels/optimizers/adafactor/factors_cuda.h"
#include "kernels/optimizers/adagrad/adagrad_cuda.h"
#include "kernels/optimizers/adam/adam_cuda.h"
#include "kernels/optimizers/adamw/adamw_cuda.h"
#include "kernels/optimizers/came/came_cuda.h"
#include "kernels/optimizers/lamb/lamb_cuda.h"
#include "kernels/optimizers/lars/lars_cuda.h"
#include "kernels/optimizers/lion/lion_cuda.h"
#include "kernels/optimizers/sgd/sgd_cuda.h"

namespace geminid::kernels {

// So two doubles of the sums can be read as the norms of any of these optimizers.
static_assert(sizeof(LambNorms) == 2 * sizeof(double) && sizeof(LarsNorms) == sizeof(LambNorms) &&
              sizeof(AdafactorNorms) == sizeof(LambNorms));

namespace {

// A pass over one segment of a tensor.
struct Pass {
  const OptimizerOptions& options;
  const FactorShape& shape;
  const Segment& segment;
  const float* scales;  // of the tensor
  double* workspace;
  size_t workspace_bytes;
  CudaStream stream;
};

// Adds to `two`, the tensor's sums, and to `factors`, the sums of its rows and columns.
Status AddFirst(const Pass& p, double* two, double* factors) {
  const Segment& s = p.segment;
  switch (p.options.kind) {
    case OptimizerKind::kLamb:
      return LambAddNormsCuda(p.options.lamb, s.arrays, s.gradient, s.count, p.workspace,
                              p.workspace_bytes, reinterpret_cast<LambNorms*>(two), p.stream);
    case OptimizerKind::kLars:
      return LarsAddNormsCuda(p.options.lars, s.arrays, s.gradient, s.count, p.workspace,
                              p.workspace_bytes, reinterpret_cast<LarsNorms*>(two), p.stream);
    case OptimizerKind::kAdafactor:
      return AdafactorAddSquaresCuda(p.options.adafactor, p.shape, s.offset, s.arrays, s.gradient,
                                     s.count, p.workspace, p.workspace_bytes, factors,
                                     reinterpret_cast<AdafactorNorms*>(two), p.stream);
    case OptimizerKind::kCame:
      return CameAddSquaresCuda(p.options.came, p.shape, s.offset, s.gradient, s.count, p.workspace,
                                p.workspace_bytes, factors, p.stream);
    default:
      return Status::kUnsupported;
  }
}

Status AddUpdates(const Pass& p, double* two) {
  const Segment& s = p.segment;
  if (p.options.kind == OptimizerKind::kAdafactor) {
    return AdafactorAddUpdateSquaresCuda(p.options.adafactor, p.shape, s.offset, p.scales,
                                         s.gradient, s.count, p.workspace, p.workspace_bytes,
                                         reinterpret_cast<AdafactorNorms*>(two), p.stream);
  }
  return CameAddUpdateSquaresCuda(p.options.came, p.shape, s.offset, p.scales, s.gradient, s.count,
                                  p.workspace, p.workspace_bytes, two + 1, p.stream);
}

}  // namespace

size_t SumsWorkspaceBytes(const ShardedStep& step, const Segment& s) {
  const std::optional<OptimizerOptions> options = step.OptionsFor(s);
  if (!options.has_value()) return 0;
  if (step.FactorTotal() > 0)
    return FactorWorkspaceBytes(step.ShapeOf(s.tensor), s.offset, s.count);
  return std::max(LambWorkspaceBytes(s.count), LarsWorkspaceBytes(s.count));
}

Status AddSumsCuda(const ShardedStep& step, SumPass pass, const Segment& segment,
                   const float* scales, double* workspace, size_t workspace_bytes, double* sums,
                   CudaStream stream) {
  const std::optional<OptimizerOptions> options = step.OptionsFor(segment);
  if (!options.has_value()) return Status::kUnsupported;
  const FactorShape& shape = step.ShapeOf(segment.tensor);
  const ShardedStep::Place& place = step.PlaceOf(segment.tensor);
  Pass p = {*options, shape, segment, nullptr, workspace, workspace_bytes, stream};
  double* const two = sums + 2 * size_t{segment.tensor};
  if (pass == SumPass::kFirst) return AddFirst(p, two, sums + place.sums);
  if (step.FactorTotal() == 0 || scales == nullptr) return Status::kUnsupported;
  p.scales = scales + place.factors;
  if (pass == SumPass::kUpdates) return AddUpdates(p, two);
  if (!shape.Factored()) return Status::kOk;
  const double update_squares = step.TensorSums()[2 * size_t{segment.tensor} + 1];
  return CameAddResidualSquaresCuda(options->came, shape, segment.offset, p.scales, update_squares,
                                    segment.arrays, segment.gradient, segment.count, workspace,
                                    workspace_bytes, sums + place.sums, stream);
}

Status MakeFactorsCuda(const ShardedStep& step, SumPass pass, const double* sums,
                       const float* old_factors, float* new_factors, float* scales,
                       double* row_means, CudaStream stream) {
  Status status = Status::kOk;
  for (size_t t = 0; t < step.tensors() && status == Status::kOk; ++t) {
    const std::optional<OptimizerOptions> options = step.OptionsFor(t);
    if (!options.has_value()) continue;
    const FactorShape& shape = step.ShapeOf(t);
    const bool residuals = pass == SumPass::kResiduals;
    if (residuals && !shape.Factored()) continue;
    const CameOptions& came = options->came;
    double kept = residuals ? came.beta3 : came.beta2;
    double epsilon = residuals ? came.epsilon2 : came.epsilon1;
    if (options->kind == OptimizerKind::kAdafactor) {
      kept = AdafactorKept(options->adafactor);
      epsilon = options->adafactor.epsilon1;
    }
    const ShardedStep::Place& place = step.PlaceOf(t);
    const uint64_t at = place.factors + (residuals ? shape.Count() : 0);
    status = AverageFactorsCuda(shape, kept, epsilon, sums + place.sums, old_factors + at,
                                new_factors + at, scales + at, row_means + t, stream);
  }
  return status;
}

Status ApplyCuda(const ShardedStep& step, const Segment& segment, const ParameterArrays& new_arrays,
                 CudaStream stream) {
  const std::optional<OptimizerOptions> options = step.OptionsFor(segment);
  if (!step.ready() || !options.has_value()) return Status::kUnsupported;
  const double* const sums = step.TensorSums().data() + 2 * size_t{segment.tensor};
  const CudaTensor tensor = {segment.arrays, segment.gradient, segment.count,
                             step.WithRounding(segment, new_arrays)};
  const FactorShape& shape = step.ShapeOf(segment.tensor);
  const float* scales = step.device_scales();
  if (step.FactorTotal() > 0 && scales == nullptr) return Status::kUnsupported;
  if (scales != nullptr) scales += step.PlaceOf(segment.tensor).factors;
  switch (options->kind) {
    case OptimizerKind::kAdamW:
      return AdamWStepCuda(options->adamw, tensor, stream);
    case OptimizerKind::kAdam:
      return AdamStepCuda(options->adamw, tensor, stream);
    case OptimizerKind::kSgd:
      return SgdStepCuda(options->sgd, tensor, stream);
    case OptimizerKind::kAdagrad:
      return AdagradStepCuda(options->adagrad, tensor, stream);
    case OptimizerKind::kLion:
      return LionStepCuda(options->lion, tensor, stream);
    case OptimizerKind::kLamb:
      return LambApplyCuda(options->lamb, {sums[0], sums[1]}, tensor, stream);
    case OptimizerKind::kLars:
      return LarsApplyCuda(options->lars, {sums[0], sums[1]}, tensor, stream);
    case OptimizerKind::kAdafactor:
      return AdafactorApplyCuda(options->adafactor, shape, segment.offset, scales,
                                {sums[0], sums[1]}, tensor, stream);
    case OptimizerKind::kCame:
      return CameApplyCuda(options->came, shape, segment.offset, scales, sums[1], tensor, stream);
    case OptimizerKind::kMuon: {
      if (step.OfMatrices(segment)) return Status::kUnsupported;
      return AdamWStepCuda(AdamWOf(options->muon), tensor, stream);
    }
  }
  return Status::kUnsupported;
}

}  // namespace geminid::kernels
