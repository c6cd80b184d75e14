#include "kernels/model/normalisation/norm_part.h"
#include "kernels/runtime/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/model/normalisation/norm_part_host.cc"
#include <cmath>

#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/model/normalisation/part_checks.h"
#include "kernels/model/normalisation/rows-inl.h"
#include "kernels/runtime/common/float_environment.h"
#include "kernels/runtime/simd/arguments.h"
#include "kernels/runtime/simd/row_sums-inl.h"

#ifndef GEMINID_KERNELS_NORM_PART_AT_
#define GEMINID_KERNELS_NORM_PART_AT_
namespace geminid::kernels {

// An element of an array; a null array counts as zeros.
inline float At(const float* array, size_t index) { return array == nullptr ? 0.0F : array[index]; }

}  // namespace geminid::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {

void PartSum(const NormPart& part, const float* x, float* sum) {
  for (size_t r = 0; r < part.rows; ++r) sum[r] = RowSum(x + r * part.cols, part.cols);
}

void PartSquares(const NormPart& part, const float* x, const float* mean, float* squares) {
  for (size_t r = 0; r < part.rows; ++r) {
    squares[r] = RowSquares(x + r * part.cols, part.cols, At(mean, r));
  }
}

void PartForward(const NormPart& part, const float* x, const float* mean, const float* rstd,
                 const float* gamma, const float* beta, float* y) {
  for (size_t r = 0; r < part.rows; ++r) {
    const F32x16 center = Set(At(mean, r)), scale = Set(rstd[r]);
    for (size_t i = 0; i < part.cols; i += kWidth) {
      const size_t n = part.cols - i;
      const F32x16 shift = beta == nullptr ? Set(0.0F) : LoadN(beta + i, n);
      const F32x16 xhat = (LoadN(x + r * part.cols + i, n) - center) * scale;
      StoreN(MulAdd(xhat, LoadN(gamma + i, n), shift), y + r * part.cols + i, n);
    }
  }
}

HWY_INLINE LayerNormRow<float> RowOf(const NormPart& part, const NormPartBackwardArgs& args,
                                     size_t r) {
  return {args.dy + r * part.cols, args.x + r * part.cols, args.gamma, At(args.mean, r),
          args.rstd[r]};
}

void PartGradientSums(const NormPart& part, const NormPartBackwardArgs& args, float* sum_gx,
                      float* sum_g) {
  for (size_t r = 0; r < part.rows; ++r) {
    const GradientSums sums = SumGradients(RowOf(part, args, r), part.cols);
    sum_gx[r] = sums.gx;
    if (sum_g != nullptr) sum_g[r] = sums.g;
  }
}

void PartBackward(const NormPart& part, const NormPartBackwardArgs& args, const float* mean_gx,
                  const float* mean_g, const NormPartGradients& gradients, float* dgamma,
                  float* dbeta) {
  ZeroRow(dgamma, part.cols);
  ZeroRow(dbeta, part.cols);
  for (size_t r = 0; r < part.rows; ++r) {
    const LayerNormRow<float> row = RowOf(part, args, r);
    AddParameterGradients(row, part.cols, dgamma, dbeta);
    WriteInputGradient<float>(row, part.cols, {At(mean_g, r), mean_gx[r]}, nullptr,
                              gradients.dx + r * part.cols);
  }
  FinishRow(dgamma, part.cols, /*accumulate=*/false, gradients.dgamma);
  if (gradients.dbeta != nullptr) {
    FinishRow(dbeta, part.cols, /*accumulate=*/false, gradients.dbeta);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace geminid::kernels {

Status NormPartSum(const NormPart& part, const float* x, float* sum) {
  const Status status = CheckNormPartSums(part, x, /*mean=*/nullptr, sum);
  if (status != Status::kOk) return status;
  const ScopedFloatEnvironment environment;
  GEMINID_KERNEL_LOOP(PartSum)(part, x, sum);
  return Status::kOk;
}

Status NormPartSquares(const NormPart& part, const float* x, const float* mean, float* squares) {
  const Status status = CheckNormPartSums(part, x, mean, squares);
  if (status != Status::kOk) return status;
  const ScopedFloatEnvironment environment;
  GEMINID_KERNEL_LOOP(PartSquares)(part, x, mean, squares);
  return Status::kOk;
}

Status NormPartMeans(size_t rows, size_t columns, float* sums) {
  const Status status = CheckNormPartMeans(rows, columns, sums);
  if (status != Status::kOk) return status;
  const ScopedFloatEnvironment environment;
  for (size_t r = 0; r < rows; ++r) sums[r] /= static_cast<float>(columns);
  return Status::kOk;
}

Status NormPartInverseRoots(size_t rows, float epsilon, float* values) {
  const Status status = CheckNormPartInverseRoots(rows, epsilon, values);
  if (status != Status::kOk) return status;
  const ScopedFloatEnvironment environment;
  for (size_t r = 0; r < rows; ++r) values[r] = 1.0F / std::sqrt(values[r] + epsilon);
  return Status::kOk;
}

Status NormPartForward(const NormPart& part, const float* x, const float* mean, const float* rstd,
                       const float* gamma, const float* beta, float* y) {
  const Status status = CheckNormPartForward(part, x, mean, rstd, gamma, beta, y);
  if (status != Status::kOk) return status;
  const ScopedFloatEnvironment environment;
  GEMINID_KERNEL_LOOP(PartForward)(part, x, mean, rstd, gamma, beta, y);
  return Status::kOk;
}

Status NormPartGradientSums(const NormPart& part, const NormPartBackwardArgs& args, float* sum_gx,
                            float* sum_g) {
  const Status status = CheckNormPartGradientSums(part, args, sum_gx, sum_g);
  if (status != Status::kOk) return status;
  const ScopedFloatEnvironment environment;
  GEMINID_KERNEL_LOOP(PartGradientSums)(part, args, sum_gx, sum_g);
  return Status::kOk;
}

size_t NormPartWorkspaceBytes(const NormPart& part) { return 2 * FloatRowBytes(part.cols); }

Status NormPartBackward(const NormPart& part, const NormPartBackwardArgs& args,
                        const float* mean_gx, const float* mean_g,
                        const NormPartGradients& gradients, void* workspace,
                        size_t workspace_bytes) {
  Status status = CheckNormPartBackward(part, args, mean_gx, mean_g, gradients);
  if (status == Status::kOk) {
    status = CheckWorkspace(workspace, workspace_bytes, NormPartWorkspaceBytes(part));
  }
  if (status != Status::kOk) return status;
  auto* dgamma = static_cast<float*>(workspace);
  const size_t row_floats = FloatRowBytes(part.cols) / sizeof(float);
  float* dbeta = dgamma + row_floats;
  const ScopedFloatEnvironment environment;
  GEMINID_KERNEL_LOOP(PartBackward)(part, args, mean_gx, mean_g, gradients, dgamma, dbeta);
  return Status::kOk;
}

}  // namespace geminid::kernels
#endif  // HWY_ONCE
