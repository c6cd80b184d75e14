// The three products of a linear layer Y = X W^T + b, as shapes for Matmul.
//
// X[tokens,in], W[out,in], b[out], Y[tokens,out]: the layout of torch.nn.Linear and of Hugging Face
// checkpoints. Forward:   Matmul(LinearForwardShape(..), X, W, b, Y).
// Gradient of the input:  Matmul(LinearBackwardInputShape(..), dY, W, nullptr, dX).
// Gradient of the weight: Matmul(LinearBackwardWeightShape(..), dY, X, nullptr, dW).
// Gradient of the bias:   ColumnSum(dY) of kernels/model/elementwise/bias.h.
#ifndef GEMINID_KERNELS_MODEL_MATMUL_LINEAR_H_
#define GEMINID_KERNELS_MODEL_MATMUL_LINEAR_H_

#include <cstddef>

#include "kernels/model/matmul/matmul.h"

namespace geminid::kernels {

// Y = X W^T (+ b).
inline MatmulShape LinearForwardShape(size_t tokens, size_t in, size_t out, bool bias) {
  return {.m = tokens, .n = out, .k = in, .transpose_b = Transpose::kYes, .bias = bias};
}

// dX (+)= dY W.
inline MatmulShape LinearBackwardInputShape(size_t tokens, size_t in, size_t out,
                                            bool accumulate = false) {
  return {.m = tokens, .n = in, .k = out, .accumulate = accumulate};
}

// dW (+)= dY^T X. dW may take the storage of W once dX was computed.
inline MatmulShape LinearBackwardWeightShape(size_t tokens, size_t in, size_t out,
                                             bool accumulate = false) {
  return {.m = out, .n = in, .k = tokens, .transpose_a = Transpose::kYes, .accumulate = accumulate};
}

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_MATMUL_LINEAR_H_
