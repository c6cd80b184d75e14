#include "kernels/model/normalisation/rms_norm.h"
#include "kernels/runtime/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/model/normalisation/rms_norm_host.cc"
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

template <class Types, typename T = typename Types::first_type,
          typename P = typename Types::second_type>
void RmsNormForwardLoop(const RmsNormShape& shape, const T* x, const P* gamma, T* y, float* rstd) {
  const size_t cols = shape.cols;
  for (size_t r = 0; r < shape.rows; ++r) {
    const T* row = x + r * cols;
    const float mean_square = RowSquares(row, cols, 0.0F) / static_cast<float>(cols);
    const float row_rstd = 1.0F / std::sqrt(mean_square + shape.epsilon);
    for (size_t i = 0; i < cols; i += kWidth) {
      const size_t n = cols - i;
      StoreN(LoadN(row + i, n) * Set(row_rstd) * LoadN(gamma + i, n), y + r * cols + i, n);
    }
    if (rstd != nullptr) rstd[r] = row_rstd;
  }
}

// One row: adds dy x rstd to the running sum of dgamma and writes dx.
template <typename T, typename P>
HWY_INLINE void RmsNormBackwardRow(const RmsNormBackwardArgs<T, P>& args, size_t begin, size_t cols,
                                   float rstd, float* dgamma) {
  const T* dy = args.dy + begin;
  const T* x = args.x + begin;
  const auto [sum] = SumOfRow<1>(cols, [&](size_t i, F32x16* sums) {
    const size_t n = cols - i;
    const F32x16 d = LoadN(dy + i, n);
    const F32x16 xhat = LoadN(x + i, n) * Set(rstd);
    sums[0] = MulAdd(d * LoadN(args.gamma + i, n), xhat, sums[0]);
    Store(MulAdd(d, xhat, Load(dgamma + i)), dgamma + i);
  });
  const F32x16 mean = Set(sum / static_cast<float>(cols));
  for (size_t i = 0; i < cols; i += kWidth) {
    const size_t n = cols - i;
    const F32x16 g = LoadN(dy + i, n) * LoadN(args.gamma + i, n);
    const F32x16 xhat = LoadN(x + i, n) * Set(rstd);
    F32x16 d = Set(rstd) * (g - xhat * mean);
    if (args.residual != nullptr) d = d + LoadN(args.residual + begin + i, n);
    StoreN(d, args.dx + begin + i, n);
  }
}

template <class Types, typename T = typename Types::first_type,
          typename P = typename Types::second_type>
void RmsNormBackwardLoop(const RmsNormShape& shape, const RmsNormBackwardArgs<T, P>& args,
                         float* dgamma) {
  ZeroRow(dgamma, shape.cols);
  for (size_t r = 0; r < shape.rows; ++r) {
    RmsNormBackwardRow(args, r * shape.cols, shape.cols, args.rstd[r], dgamma);
  }
  if (args.dgamma != nullptr) FinishRow(dgamma, shape.cols, args.accumulate, args.dgamma);
}

}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace geminid::kernels {

template <typename T, typename P>
Status RmsNormForward(const RmsNormShape& shape, const T* x, const P* gamma, T* y, float* rstd) {
  size_t count = 0;
  const Status status = CheckRmsNormForward(shape, x, gamma, y, rstd, &count);
  if (status != Status::kOk || count == 0) return status;
  const ScopedFloatEnvironment environment;
  using Types = std::pair<T, P>;
  GEMINID_KERNEL_LOOP(RmsNormForwardLoop<Types>)(shape, x, gamma, y, rstd);
  return Status::kOk;
}

size_t RmsNormWorkspaceBytes(const RmsNormShape& shape) { return FloatRowBytes(shape.cols); }

template <typename T, typename P>
Status RmsNormBackward(const RmsNormShape& shape, const RmsNormBackwardArgs<T, P>& args,
                       void* workspace, size_t workspace_bytes) {
  size_t count = 0;
  Status status = CheckRmsNormBackward(shape, args, &count);
  if (status != Status::kOk) return status;
  status = CheckWorkspace(workspace, workspace_bytes, RmsNormWorkspaceBytes(shape));
  if (status != Status::kOk) return status;
  const ScopedFloatEnvironment environment;
  using Types = std::pair<T, P>;
  GEMINID_KERNEL_LOOP(RmsNormBackwardLoop<Types>)(shape, args, static_cast<float*>(workspace));
  return Status::kOk;
}

template Status RmsNormForward(const RmsNormShape&, const float*, const float*, float*, float*);
template Status RmsNormForward(const RmsNormShape&, const BFloat16*, const BFloat16*, BFloat16*,
                               float*);
template Status RmsNormForward(const RmsNormShape&, const BFloat16*, const float*, BFloat16*,
                               float*);
template Status RmsNormBackward(const RmsNormShape&, const RmsNormBackwardArgs<float>&, void*,
                                size_t);
template Status RmsNormBackward(const RmsNormShape&, const RmsNormBackwardArgs<BFloat16>&, void*,
                                size_t);
template Status RmsNormBackward(const RmsNormShape&, const RmsNormBackwardArgs<BFloat16, float>&,
                                void*, size_t);

}  // namespace geminid::kernels
#endif  // HWY_ONCE
