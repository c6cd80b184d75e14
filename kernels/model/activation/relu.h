// ReLU: relu(x) = x where x > 0, else +0. Its derivative is 1 where x > 0 and 0 elsewhere, at 0
// too. A NaN stays a NaN. Nothing is rounded, so every processor gives the same bits. T is float or
// BFloat16.
#ifndef GEMINID_KERNELS_MODEL_ACTIVATION_RELU_H_
#define GEMINID_KERNELS_MODEL_ACTIVATION_RELU_H_

#include <cstddef>

#include "kernels/runtime/common/bfloat16.h"
#include "kernels/runtime/common/status.h"

namespace geminid::kernels {

// y[i] = relu(x[i]), i < count. `y` may be `x`.
template <typename T>
Status ReluForward(const T* x, size_t count, T* y);

// dx[i] = dy[i] relu'(x[i]). `dx` may be `dy` or `x`.
template <typename T>
Status ReluBackward(const T* dy, const T* x, size_t count, T* dx);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_ACTIVATION_RELU_H_
