// Argument checks of the normalisations. Internal to them.
#ifndef GEMINID_KERNELS_MODEL_NORMALISATION_CHECKS_H_
#define GEMINID_KERNELS_MODEL_NORMALISATION_CHECKS_H_

#include <cstddef>

#include "kernels/model/normalisation/layer_norm.h"
#include "kernels/model/normalisation/rms_norm.h"
#include "kernels/runtime/simd/arguments.h"

namespace geminid::kernels {

// Checks a shape of either kind; *count receives the number of elements of x.
template <class Shape>
Status CheckNormShape(const Shape& shape, size_t* count) {
  if (shape.cols == 0) return Status::kInvalidShape;
  if (!IsFiniteNonNegative(shape.epsilon)) return Status::kInvalidParameter;
  return CheckedProduct(shape.rows, shape.cols, count);
}

// The checks that both backward passes share: dx may be dy or the residual.
template <class Shape, class Args>
Status CheckNormGradient(const Shape& shape, const Args& args, size_t* count) {
  Status status = CheckNormShape(shape, count);
  if (status != Status::kOk) return status;
  const Buffer residual = Buffer::Of(args.residual, args.residual == nullptr ? 0 : *count);
  return CheckInPlace(Buffer::Of(args.dx, *count), {Buffer::Of(args.dy, *count), residual});
}

template <typename T, typename P>
Status CheckLayerNormForward(const LayerNormShape& shape, const T* x, const P* gamma, const P* beta,
                             const T* y, const float* mean, const float* rstd, size_t* count) {
  Status status = CheckNormShape(shape, count);
  if (status != Status::kOk) return status;
  const Buffer out = Buffer::Of(y, *count);
  status = CheckInPlace(out, {Buffer::Of(x, *count)});
  if (status != Status::kOk) return status;
  if ((mean == nullptr) != (rstd == nullptr)) return Status::kNullPointer;
  const size_t saved = mean == nullptr ? 0 : shape.rows;
  return CheckBuffers({Buffer::Of(gamma, shape.cols), Buffer::Of(beta, shape.cols)},
                      {out, Buffer::Of(mean, saved), Buffer::Of(rstd, saved)});
}

template <typename T, typename P>
Status CheckLayerNormBackward(const LayerNormShape& shape, const LayerNormBackwardArgs<T, P>& args,
                              size_t* count) {
  const Status status = CheckNormGradient(shape, args, count);
  if (status != Status::kOk) return status;
  if ((args.dgamma == nullptr) != (args.dbeta == nullptr)) return Status::kNullPointer;
  const size_t params = args.dgamma == nullptr ? 0 : shape.cols;
  return CheckBuffers({Buffer::Of(args.x, *count), Buffer::Of(args.gamma, shape.cols),
                       Buffer::Of(args.mean, shape.rows), Buffer::Of(args.rstd, shape.rows)},
                      {Buffer::Of(args.dx, *count), Buffer::Of(args.dgamma, params),
                       Buffer::Of(args.dbeta, params)});
}

template <typename T, typename P>
Status CheckRmsNormForward(const RmsNormShape& shape, const T* x, const P* gamma, const T* y,
                           const float* rstd, size_t* count) {
  Status status = CheckNormShape(shape, count);
  if (status != Status::kOk) return status;
  const Buffer out = Buffer::Of(y, *count);
  status = CheckInPlace(out, {Buffer::Of(x, *count)});
  if (status != Status::kOk) return status;
  const size_t saved = rstd == nullptr ? 0 : shape.rows;
  return CheckBuffers({Buffer::Of(gamma, shape.cols)}, {out, Buffer::Of(rstd, saved)});
}

template <typename T, typename P>
Status CheckRmsNormBackward(const RmsNormShape& shape, const RmsNormBackwardArgs<T, P>& args,
                            size_t* count) {
  const Status status = CheckNormGradient(shape, args, count);
  if (status != Status::kOk) return status;
  const size_t params = args.dgamma == nullptr ? 0 : shape.cols;
  return CheckBuffers({Buffer::Of(args.x, *count), Buffer::Of(args.gamma, shape.cols),
                       Buffer::Of(args.rstd, shape.rows)},
                      {Buffer::Of(args.dx, *count), Buffer::Of(args.dgamma, params)});
}

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_NORMALISATION_CHECKS_H_
