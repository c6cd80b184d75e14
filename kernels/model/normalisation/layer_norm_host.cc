#include "kernels/model/normalisation/layer_norm.h"
#include "kernels/runtime/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/model/normalisation/layer_norm_host.cc"
#include <cmath>
#include <utility>

#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/model/normalisation/checks.h"
#include "kernels/model/normalisation/rows-inl.h"
#include "kernels/runtime/common/float_environment.h"
#include "kernels/runtime/simd/arguments.h"
#include "kernels/runtime/simd/row_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {

template <typename T>
HWY_INLINE float RowMean(const T* x, size_t cols) {
  return RowSum(x, cols) / static_cast<float>(cols);
}

template <typename T>
HWY_INLINE float RowRstd(const T* x, size_t cols, float mean, float epsilon) {
  return 1.0F / std::sqrt(RowSquares(x, cols, mean) / static_cast<float>(cols) + epsilon);
}

template <class Types, typename T = typename Types::first_type,
          typename P = typename Types::second_type>
void LayerNormForwardLoop(const LayerNormShape& shape, const T* x, const P* gamma, const P* beta,
                          T* y, float* mean, float* rstd) {
  for (size_t r = 0; r < shape.rows; ++r) {
    const T* row = x + r * shape.cols;
    T* out = y + r * shape.cols;
    const float row_mean = RowMean(row, shape.cols);
    const float row_rstd = RowRstd(row, shape.cols, row_mean, shape.epsilon);
    for (size_t i = 0; i < shape.cols; i += kWidth) {
      const size_t n = shape.cols - i;
      const F32x16 xhat = (LoadN(row + i, n) - Set(row_mean)) * Set(row_rstd);
      StoreN(MulAdd(xhat, LoadN(gamma + i, n), LoadN(beta + i, n)), out + i, n);
    }
    if (mean != nullptr) {
      mean[r] = row_mean;
      rstd[r] = row_rstd;
    }
  }
}

template <typename T, typename P>
HWY_INLINE void InputGradient(const LayerNormRow<T, P>& row, size_t cols, const T* residual,
                              T* dx) {
  const GradientSums sums = SumGradients(row, cols);
  const auto count = static_cast<float>(cols);
  WriteInputGradient(row, cols, {sums.g / count, sums.gx / count}, residual, dx);
}

template <class Types, typename T = typename Types::first_type,
          typename P = typename Types::second_type>
void LayerNormBackwardLoop(const LayerNormShape& shape, const LayerNormBackwardArgs<T, P>& args,
                           float* dgamma, float* dbeta) {
  const size_t cols = shape.cols;
  ZeroRow(dgamma, cols);
  ZeroRow(dbeta, cols);
  for (size_t r = 0; r < shape.rows; ++r) {
    const LayerNormRow<T, P> row = {args.dy + r * cols, args.x + r * cols, args.gamma, args.mean[r],
                                    args.rstd[r]};
    if (args.dgamma != nullptr) AddParameterGradients(row, cols, dgamma, dbeta);
    const T* residual = args.residual == nullptr ? nullptr : args.residual + r * cols;
    InputGradient(row, cols, residual, args.dx + r * cols);
  }
  if (args.dgamma == nullptr) return;
  FinishRow(dgamma, cols, args.accumulate, args.dgamma);
  FinishRow(dbeta, cols, args.accumulate, args.dbeta);
}

}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace geminid::kernels {

template <typename T, typename P>
Status LayerNormForward(const LayerNormShape& shape, const T* x, const P* gamma, const P* beta,
                        T* y, float* mean, float* rstd) {
  size_t count = 0;
  const Status status = CheckLayerNormForward(shape, x, gamma, beta, y, mean, rstd, &count);
  if (status != Status::kOk || count == 0) return status;
  const ScopedFloatEnvironment environment;
  using Types = std::pair<T, P>;
  GEMINID_KERNEL_LOOP(LayerNormForwardLoop<Types>)(shape, x, gamma, beta, y, mean, rstd);
  return Status::kOk;
}

size_t LayerNormWorkspaceBytes(const LayerNormShape& shape) {
  return 2 * FloatRowBytes(shape.cols);
}

template <typename T, typename P>
Status LayerNormBackward(const LayerNormShape& shape, const LayerNormBackwardArgs<T, P>& args,
                         void* workspace, size_t workspace_bytes) {
  size_t count = 0;
  Status status = CheckLayerNormBackward(shape, args, &count);
  if (status != Status::kOk) return status;
  status = CheckWorkspace(workspace, workspace_bytes, LayerNormWorkspaceBytes(shape));
  if (status != Status::kOk) return status;
  auto* dgamma = static_cast<float*>(workspace);
  const size_t row_floats = FloatRowBytes(shape.cols) / sizeof(float);
  float* dbeta = dgamma + row_floats;
  const ScopedFloatEnvironment environment;
  using Types = std::pair<T, P>;
  GEMINID_KERNEL_LOOP(LayerNormBackwardLoop<Types>)(shape, args, dgamma, dbeta);
  return Status::kOk;
}

template Status LayerNormForward(const LayerNormShape&, const float*, const float*, const float*,
                                 float*, float*, float*);
template Status LayerNormForward(const LayerNormShape&, const BFloat16*, const BFloat16*,
                                 const BFloat16*, BFloat16*, float*, float*);
template Status LayerNormForward(const LayerNormShape&, const BFloat16*, const float*, const float*,
                                 BFloat16*, float*, float*);
template Status LayerNormBackward(const LayerNormShape&, const LayerNormBackwardArgs<float>&, void*,
                                  size_t);
template Status LayerNormBackward(const LayerNormShape&, const LayerNormBackwardArgs<BFloat16>&,
                                  void*, size_t);
template Status LayerNormBackward(const LayerNormShape&,
                                  const LayerNormBackwardArgs<BFloat16, float>&, void*, size_t);

}  // namespace geminid::kernels
#endif  // HWY_ONCE
