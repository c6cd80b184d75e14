// Argument checks of the normalisation of parts of rows. Internal to it.
#ifndef GEMINID_KERNELS_MODEL_NORMALISATION_PART_CHECKS_H_
#define GEMINID_KERNELS_MODEL_NORMALISATION_PART_CHECKS_H_

#include <cstddef>

#include "kernels/model/normalisation/norm_part.h"
#include "kernels/runtime/simd/arguments.h"

namespace geminid::kernels {

// An array that may be null.
inline Buffer OptionalBuffer(const float* array, size_t count) {
  return Buffer::Of(array, array == nullptr ? 0 : count);
}

inline Status CheckNormPart(const NormPart& part, size_t* count) {
  return part.cols == 0 ? Status::kInvalidShape : CheckedProduct(part.rows, part.cols, count);
}

// Checks the arguments of a sum over each row; `mean` may be null.
inline Status CheckNormPartSums(const NormPart& part, const float* x, const float* mean,
                                const float* sums) {
  size_t count = 0;
  const Status status = CheckNormPart(part, &count);
  if (status != Status::kOk) return status;
  return CheckBuffers({Buffer::Of(x, count), OptionalBuffer(mean, part.rows)},
                      {Buffer::Of(sums, part.rows)});
}

inline Status CheckNormPartMeans(size_t rows, size_t columns, const float* sums) {
  return columns == 0 ? Status::kInvalidShape : CheckBuffer(Buffer::Of(sums, rows));
}

inline Status CheckNormPartInverseRoots(size_t rows, float epsilon, const float* values) {
  if (!IsFiniteNonNegative(epsilon)) return Status::kInvalidParameter;
  return CheckBuffer(Buffer::Of(values, rows));
}

inline Status CheckNormPartForward(const NormPart& part, const float* x, const float* mean,
                                   const float* rstd, const float* gamma, const float* beta,
                                   const float* y) {
  size_t count = 0;
  Status status = CheckNormPart(part, &count);
  if (status != Status::kOk) return status;
  const Buffer out = Buffer::Of(y, count);
  status = CheckInPlace(out, {Buffer::Of(x, count)});
  if (status != Status::kOk) return status;
  return CheckBuffers({OptionalBuffer(mean, part.rows), Buffer::Of(rstd, part.rows),
                       Buffer::Of(gamma, part.cols), OptionalBuffer(beta, part.cols)},
                      {out});
}

// Checks the inputs of the backward pass and two outputs.
inline Status CheckNormPartGradient(const NormPart& part, const NormPartBackwardArgs& args,
                                    size_t count, const Buffer& first, const Buffer& second) {
  return CheckBuffers({Buffer::Of(args.x, count), Buffer::Of(args.gamma, part.cols),
                       OptionalBuffer(args.mean, part.rows), Buffer::Of(args.rstd, part.rows)},
                      {first, second});
}

inline Status CheckNormPartGradientSums(const NormPart& part, const NormPartBackwardArgs& args,
                                        const float* sum_gx, const float* sum_g) {
  size_t count = 0;
  Status status = CheckNormPart(part, &count);
  if (status == Status::kOk) status = CheckBuffer(Buffer::Of(args.dy, count));
  if (status != Status::kOk) return status;
  return CheckNormPartGradient(part, args, count, Buffer::Of(sum_gx, part.rows),
                               OptionalBuffer(sum_g, part.rows));
}

inline Status CheckNormPartBackward(const NormPart& part, const NormPartBackwardArgs& args,
                                    const float* mean_gx, const float* mean_g,
                                    const NormPartGradients& gradients) {
  size_t count = 0;
  Status status = CheckNormPart(part, &count);
  if (status != Status::kOk) return status;
  const Buffer dx = Buffer::Of(gradients.dx, count);
  status = CheckInPlace(dx, {Buffer::Of(args.dy, count)});
  if (status != Status::kOk) return status;
  status = CheckNormPartGradient(part, args, count, Buffer::Of(gradients.dgamma, part.cols),
                                 OptionalBuffer(gradients.dbeta, part.cols));
  if (status != Status::kOk) return status;
  return CheckBuffers({Buffer::Of(args.x, count), Buffer::Of(mean_gx, part.rows),
                       OptionalBuffer(mean_g, part.rows)},
                      {dx});
}

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_NORMALISATION_PART_CHECKS_H_
