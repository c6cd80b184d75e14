// Residual addition. T is float or BFloat16.
#ifndef GEMINID_KERNELS_MODEL_ELEMENTWISE_RESIDUAL_H_
#define GEMINID_KERNELS_MODEL_ELEMENTWISE_RESIDUAL_H_

#include <cstddef>

#include "kernels/runtime/common/bfloat16.h"
#include "kernels/runtime/common/status.h"

namespace geminid::kernels {

// out[i] = a[i] + b[i], i < count, added in fp32 and rounded once. `out` may be `a` or `b`.
// Elementwise: any split of an array into calls gives the same bits.
template <typename T>
Status ResidualAdd(const T* a, const T* b, size_t count, T* out);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_ELEMENTWISE_RESIDUAL_H_
