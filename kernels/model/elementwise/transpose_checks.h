// Argument checks of TransposeMatrix. Internal to it.
#ifndef GEMINID_KERNELS_MODEL_ELEMENTWISE_TRANSPOSE_CHECKS_H_
#define GEMINID_KERNELS_MODEL_ELEMENTWISE_TRANSPOSE_CHECKS_H_

#include <cstddef>

#include "kernels/runtime/simd/arguments.h"

namespace geminid::kernels {

template <typename From, typename To>
Status CheckTranspose(size_t rows, size_t cols, const From* from, const To* to) {
  size_t count = 0;
  const Status status = CheckedProduct(rows, cols, &count);
  if (status != Status::kOk) return status;
  return CheckBuffers({Buffer::Of(from, count)}, {Buffer::Of(to, count)});
}

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_ELEMENTWISE_TRANSPOSE_CHECKS_H_
