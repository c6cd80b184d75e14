// Argument checks of the rotation. Internal to it.
#ifndef GEMINID_KERNELS_MODEL_ROTARY_CHECKS_H_
#define GEMINID_KERNELS_MODEL_ROTARY_CHECKS_H_

#include <cstddef>

#include "kernels/model/rotary/rotary.h"
#include "kernels/runtime/simd/arguments.h"

namespace geminid::kernels {

template <typename T>
Status CheckRotate(const RotaryShape& shape, const float* cos, const float* sin, const T* x) {
  size_t width = 0;
  size_t tokens = 0;
  size_t count = 0;
  size_t positions = 0;
  size_t table = 0;
  if (shape.head_dim == 0 || shape.head_dim % 2 != 0) return Status::kInvalidShape;
  if (shape.HeadStride() < shape.head_dim) return Status::kInvalidShape;
  Status status = CheckedProduct(shape.heads, shape.HeadStride(), &width);
  if (status == Status::kOk) status = CheckedProduct(shape.batch, shape.sequence, &tokens);
  if (status == Status::kOk) status = CheckedProduct(tokens, shape.token_stride, &count);
  if (status != Status::kOk) return status;
  if (shape.token_stride < width) return Status::kInvalidShape;
  if (__builtin_add_overflow(shape.first_position, shape.sequence, &positions)) {
    return Status::kSizeOverflow;
  }
  status = CheckedProduct(positions, shape.head_dim / 2, &table);
  if (status != Status::kOk) return status;
  if (count > 0) count -= shape.token_stride - width;
  return CheckBuffers({Buffer::Of(cos, table), Buffer::Of(sin, table)}, {Buffer::Of(x, count)});
}

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_ROTARY_CHECKS_H_
