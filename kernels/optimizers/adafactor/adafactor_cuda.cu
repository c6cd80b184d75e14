#include "kernels/optimizers/adafactor/adafactor_cuda.h"
#include "kernels/optimizers/adafactor/factored_cuda.cuh"

namespace geminid::kernels {
namespace cuda {

GEMINID_MEASURE_KERNELS(adafactor_update, UnclippedRule);
GEMINID_UPDATE_KERNELS(adafactor, FactoredRule<AdafactorRule>);
GEMINID_UPDATE_KERNELS(adafactor_momentum, FactoredRule<AdafactorMomentumRule>);

Status MeasureUpdate(float grad_scale, const FactorShape& shape, uint64_t offset,
                     const float* scales, const GradientArray& gradient, size_t count,
                     double* workspace, size_t workspace_bytes, double* update_squares,
                     CudaStream stream) {
  Status status = CheckFactorPass(shape, offset, count, scales);
  if (status == Status::kOk) status = CheckGradient(gradient, count);
  if (status != Status::kOk || count == 0) return status;
  const UnclippedRule rule = {grad_scale, ScaleLookup(shape, offset, scales)};
  return Measure<Columns::kNone>(rule, {{}, gradient, RowBlocks(shape.Columns(), offset, count)},
                                 workspace, workspace_bytes, {.result = update_squares}, stream);
}

Status UpdateWithMomentum(const AdafactorCoefficients& k, const ScaleLookup& scales,
                          const CudaTensor& tensor, CudaStream stream) {
  return Update(FactoredRule<AdafactorMomentumRule>{{k}, scales}, tensor, stream);
}

}  // namespace cuda

size_t FactorWorkspaceBytes(const FactorShape& shape, uint64_t offset, size_t count) {
  return count == 0 ? 0
                    : cuda::MeasureWorkspaceBytes(cuda::RowBlocks(shape.Columns(), offset, count));
}

Status AdafactorAddSquaresCuda(const AdafactorOptions& options, const FactorShape& shape,
                               uint64_t offset, const ConstParameterArrays& arrays,
                               const GradientArray& gradient, size_t count, double* workspace,
                               size_t workspace_bytes, double* sums, AdafactorNorms* norms,
                               CudaStream stream) {
  if (norms == nullptr) return Status::kNullPointer;
  Status status = CheckAdafactorOptions(options);
  if (status == Status::kOk) status = CheckFactorPass(shape, offset, count, sums);
  if (status == Status::kOk) status = CheckReadArrays(arrays, gradient, count, 0);
  if (status != Status::kOk || count == 0) return status;
  cuda::SumTargets targets = cuda::TargetsOf(shape, sums);
  targets.weight = &norms->weight_squares;
  return cuda::MeasureScaledGradients(
      static_cast<float>(options.grad_scale),
      {arrays, gradient, cuda::RowBlocks(shape.Columns(), offset, count)}, workspace,
      workspace_bytes, targets, stream);
}

Status AdafactorAddUpdateSquaresCuda(const AdafactorOptions& options, const FactorShape& shape,
                                     uint64_t offset, const float* scales,
                                     const GradientArray& gradient, size_t count, double* workspace,
                                     size_t workspace_bytes, AdafactorNorms* norms,
                                     CudaStream stream) {
  if (norms == nullptr) return Status::kNullPointer;
  const Status status = CheckAdafactorOptions(options);
  if (status != Status::kOk) return status;
  return cuda::MeasureUpdate(static_cast<float>(options.grad_scale), shape, offset, scales,
                             gradient, count, workspace, workspace_bytes, &norms->update_squares,
                             stream);
}

Status AdafactorApplyCuda(const AdafactorOptions& options, const FactorShape& shape,
                          uint64_t offset, const float* scales, const AdafactorNorms& norms,
                          const CudaTensor& tensor, CudaStream stream) {
  AdafactorCoefficients k;
  const int states = AdafactorStateArrays(options);
  Status status = MakeCoefficients(options, shape, norms, &k);
  if (status == Status::kOk) status = CheckFactorPass(shape, offset, tensor.count, scales);
  if (status == Status::kOk) status = cuda::CheckTensor(tensor, states);
  if (status != Status::kOk) return status;
  const cuda::ScaleLookup lookup(shape, offset, scales);
  if (states != 0) return cuda::UpdateWithMomentum(k, lookup, tensor, stream);
  return cuda::Update(cuda::FactoredRule<AdafactorRule>{{k}, lookup}, tensor, stream);
}

}  // namespace geminid::kernels
