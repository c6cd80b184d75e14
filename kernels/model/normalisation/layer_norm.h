// Layer normalisation over rows of x[rows,cols] (arXiv:1607.06450):
//
//   mean = sum(x)/cols;  rstd = 1/sqrt(sum((x-mean)^2)/cols + epsilon);  xhat = (x-mean) rstd
//   y = xhat gamma + beta
//   g = dy gamma;  dx = rstd (g - sum(g)/cols - xhat sum(g xhat)/cols)
//   dgamma = sum over rows of dy xhat;  dbeta = sum over rows of dy
//
// fp32 arithmetic in a fixed order, one rounding at the end. T, of the elements, is float or
// BFloat16; P, of gamma and beta and their gradients, is T, or float beside BFloat16.
#ifndef GEMINID_KERNELS_MODEL_NORMALISATION_LAYER_NORM_H_
#define GEMINID_KERNELS_MODEL_NORMALISATION_LAYER_NORM_H_

#include <cstddef>

#include "kernels/runtime/common/bfloat16.h"
#include "kernels/runtime/common/status.h"

namespace geminid::kernels {

struct LayerNormShape {
  size_t rows = 0;
  size_t cols = 0;
  float epsilon = 1e-5F;  // finite, >= 0
};

// Writes y[rows,cols], mean[rows], rstd[rows]. `y` may be `x`. mean and rstd may both be null when
// no backward pass follows.
template <typename T, typename P = T>
Status LayerNormForward(const LayerNormShape& shape, const T* x, const P* gamma, const P* beta,
                        T* y, float* mean, float* rstd);

// Bytes of workspace for the backward pass: two fp32 rows, rounded up to 64 bytes.
size_t LayerNormWorkspaceBytes(const LayerNormShape& shape);

template <typename T, typename P = T>
struct LayerNormBackwardArgs {
  const T* dy = nullptr;
  const T* x = nullptr;
  const P* gamma = nullptr;
  const float* mean = nullptr;
  const float* rstd = nullptr;
  const T* residual = nullptr;  // nullable [rows,cols]: added to dx before it is rounded
  T* dx = nullptr;              // may be dy or residual
  P* dgamma = nullptr;          // dgamma and dbeta: both, or both null (frozen parameters)
  P* dbeta = nullptr;
  bool accumulate = false;  // add to dgamma and dbeta instead of overwriting them
};

// `workspace` is 64-byte aligned.
template <typename T, typename P = T>
Status LayerNormBackward(const LayerNormShape& shape, const LayerNormBackwardArgs<T, P>& args,
                         void* workspace, size_t workspace_bytes);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_NORMALISATION_LAYER_NORM_H_
