// SwiGLU, the gated activation of LLaMA (arXiv:2002.05202):
//
//   y = gate sigmoid(gate) up
//   s = sigmoid(gate);  dup = dy gate s;  dgate = dy up s (1 + gate (1-s))
//
// fp32 arithmetic, one rounding to T. Elementwise over [rows,cols]; `gate_up_stride` (in elements)
// separates rows of gate, up and their gradients, so that both may be halves of one fused
// activation. y and dy are dense. T is float or BFloat16.
#ifndef GEMINID_KERNELS_MODEL_ACTIVATION_SWIGLU_H_
#define GEMINID_KERNELS_MODEL_ACTIVATION_SWIGLU_H_

#include <cstddef>

#include "kernels/runtime/common/bfloat16.h"
#include "kernels/runtime/common/status.h"

namespace geminid::kernels {

struct SwigluShape {
  size_t rows = 0;
  size_t cols = 0;
  size_t gate_up_stride = 0;  // >= cols
};

template <typename T>
Status SwigluForward(const SwigluShape& shape, const T* gate, const T* up, T* y);

// `dgate` may be `gate` and `dup` may be `up`.
template <typename T>
Status SwigluBackward(const SwigluShape& shape, const T* dy, const T* gate, const T* up, T* dgate,
                      T* dup);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_ACTIVATION_SWIGLU_H_
