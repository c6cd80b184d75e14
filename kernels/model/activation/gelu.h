// GELU in the tanh form of GPT-2 (arXiv:1606.08415):
//
//   u = sqrt(2/pi) (x + 0.044715 x^3);  gelu(x) = x/2 (1 + tanh(u)) = x sigmoid(2u)
//   gelu'(x) = s + x s (1-s) 2u',  s = sigmoid(2u),  u' = sqrt(2/pi) (1 + 3 * 0.044715 x^2)
//
// The sigmoid form needs no tanh and loses no digits near 0. fp32 arithmetic, one rounding to T.
// Elementwise: any split of an array into calls gives the same bits. T is float or BFloat16.
#ifndef GEMINID_KERNELS_MODEL_ACTIVATION_GELU_H_
#define GEMINID_KERNELS_MODEL_ACTIVATION_GELU_H_

#include <cstddef>

#include "kernels/runtime/common/bfloat16.h"
#include "kernels/runtime/common/status.h"

namespace geminid::kernels {

// y[i] = gelu(x[i]), i < count. `y` may be `x`.
template <typename T>
Status GeluForward(const T* x, size_t count, T* y);

// dx[i] = dy[i] gelu'(x[i]). `dx` may be `dy` or `x`.
template <typename T>
Status GeluBackward(const T* dy, const T* x, size_t count, T* dx);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_ACTIVATION_GELU_H_
