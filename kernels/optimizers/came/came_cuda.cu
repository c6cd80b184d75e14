#include "kernels/optimizers/adafactor/factored_cuda.cuh"
#include "kernels/optimizers/came/came_cuda.h"
#include "kernels/optimizers/came/came_rule.h"

namespace geminid::kernels {
namespace cuda {

// CameRule with both pairs of scales.
struct ConfidentRule {
  static constexpr int kStates = CameRule::kStates;

  __device__ void operator()(size_t at, Element<float>& e) const {
    const ScaleLookup::Place place = scales.PlaceOf(at);
    CameRule rule = {k, confidence.RowScale(place)};
    rule.k.row_scale = scales.RowScale(place);
    e.factor[0] = scales.columns[place.column];
    e.factor[1] = confidence.columns[place.column];
    rule(e);
  }

  AdafactorCoefficients k;
  ScaleLookup scales;
  ScaleLookup confidence;
};

GEMINID_MEASURE_KERNELS(came_residual, FactoredRule<CameResidualRule>);
GEMINID_MEASURE_COLUMN_KERNELS(came_residual);
GEMINID_UPDATE_KERNELS(came, ConfidentRule);

}  // namespace cuda

Status CameAddSquaresCuda(const CameOptions& options, const FactorShape& shape, uint64_t offset,
                          const GradientArray& gradient, size_t count, double* workspace,
                          size_t workspace_bytes, double* sums, CudaStream stream) {
  Status status = CheckCameOptions(options);
  if (status == Status::kOk) status = CheckFactorPass(shape, offset, count, sums);
  if (status == Status::kOk) status = CheckGradient(gradient, count);
  if (status != Status::kOk || count == 0) return status;
  return cuda::MeasureScaledGradients(
      static_cast<float>(options.grad_scale),
      {{}, gradient, cuda::RowBlocks(shape.Columns(), offset, count)}, workspace, workspace_bytes,
      cuda::TargetsOf(shape, sums), stream);
}

Status CameAddUpdateSquaresCuda(const CameOptions& options, const FactorShape& shape,
                                uint64_t offset, const float* scales, const GradientArray& gradient,
                                size_t count, double* workspace, size_t workspace_bytes,
                                double* update_squares, CudaStream stream) {
  if (update_squares == nullptr) return Status::kNullPointer;
  const Status status = CheckCameOptions(options);
  if (status != Status::kOk) return status;
  return cuda::MeasureUpdate(static_cast<float>(options.grad_scale), shape, offset, scales,
                             gradient, count, workspace, workspace_bytes, update_squares, stream);
}

Status CameAddResidualSquaresCuda(const CameOptions& options, const FactorShape& shape,
                                  uint64_t offset, const float* scales, double update_squares,
                                  const ConstParameterArrays& arrays, const GradientArray& gradient,
                                  size_t count, double* workspace, size_t workspace_bytes,
                                  double* sums, CudaStream stream) {
  AdafactorCoefficients k;
  Status status = MakeCoefficients(options, shape, update_squares, &k);
  if (status == Status::kOk) status = CheckFactorPass(shape, offset, count, sums);
  if (status == Status::kOk) status = CheckFactorPass(shape, offset, count, scales);
  if (status == Status::kOk) status = CheckReadArrays(arrays, gradient, count, 1);
  if (status != Status::kOk || count == 0) return status;
  const cuda::FactoredRule<CameResidualRule> rule = {{k}, cuda::ScaleLookup(shape, offset, scales)};
  return cuda::Measure<cuda::Columns::kMaybe>(
      rule, {arrays, gradient, cuda::RowBlocks(shape.Columns(), offset, count)}, workspace,
      workspace_bytes, cuda::TargetsOf(shape, sums), stream);
}

Status CameApplyCuda(const CameOptions& options, const FactorShape& shape, uint64_t offset,
                     const float* scales, double update_squares, const CudaTensor& tensor,
                     CudaStream stream) {
  AdafactorCoefficients k;
  Status status = MakeCoefficients(options, shape, update_squares, &k);
  if (status == Status::kOk) status = CheckFactorPass(shape, offset, tensor.count, scales);
  if (status == Status::kOk) status = cuda::CheckTensor(tensor, 1);
  if (status != Status::kOk) return status;
  const cuda::ScaleLookup lookup(shape, offset, scales);
  if (!shape.Factored()) return cuda::UpdateWithMomentum(k, lookup, tensor, stream);
  const cuda::ScaleLookup confidence(shape, offset, scales + shape.Count());
  return cuda::Update(cuda::ConfidentRule{k, lookup, confidence}, tensor, stream);
}

}  // namespace geminid::kernels
