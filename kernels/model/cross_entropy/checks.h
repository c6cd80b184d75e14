// Argument checks of the cross-entropy, except those of the targets. Internal to it.
#ifndef GEMINID_KERNELS_MODEL_CROSS_ENTROPY_CHECKS_H_
#define GEMINID_KERNELS_MODEL_CROSS_ENTROPY_CHECKS_H_

#include <cmath>
#include <cstddef>

#include "kernels/model/cross_entropy/cross_entropy.h"
#include "kernels/runtime/simd/arguments.h"

namespace geminid::kernels {

template <typename T>
Status CheckCrossEntropy(const CrossEntropyShape& shape, const T* logits, const int32_t* targets,
                         float grad_scale, const T* dlogits, const float* token_loss,
                         const CrossEntropyResult* result) {
  if (shape.vocabulary == 0 || shape.row_stride < shape.vocabulary) return Status::kInvalidShape;
  if (!std::isfinite(grad_scale)) return Status::kInvalidParameter;
  if (result == nullptr) return Status::kNullPointer;
  size_t count = 0;
  Status status = CheckedProduct(shape.tokens, shape.row_stride, &count);
  if (status != Status::kOk) return status;
  const Buffer gradient = Buffer::Of(dlogits, dlogits == nullptr ? 0 : count);
  status = CheckInPlace(gradient, {Buffer::Of(logits, count)});
  if (status != Status::kOk) return status;
  const size_t losses = token_loss == nullptr ? 0 : shape.tokens;
  return CheckBuffers({Buffer::Of(targets, shape.tokens)},
                      {gradient, Buffer::Of(token_loss, losses)});
}

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_CROSS_ENTROPY_CHECKS_H_
