// Root-mean-square normalisation over rows of x[rows,cols] (arXiv:1910.07467), as in LLaMA:
//
//   rstd = 1/sqrt(sum(x^2)/cols + epsilon);  y = x rstd gamma
//   g = dy gamma;  dx = rstd (g - x rstd^2 sum(g x)/cols);  dgamma = sum over rows of dy x rstd
//
// fp32 arithmetic in a fixed order, one rounding at the end. T, of the elements, is float or
// BFloat16; P, of gamma and its gradient, is T, or float beside BFloat16.
#ifndef GEMINID_KERNELS_MODEL_NORMALISATION_RMS_NORM_H_
#define GEMINID_KERNELS_MODEL_NORMALISATION_RMS_NORM_H_

#include <cstddef>

#include "kernels/runtime/common/bfloat16.h"
#include "kernels/runtime/common/status.h"

namespace geminid::kernels {

struct RmsNormShape {
  size_t rows = 0;
  size_t cols = 0;
  float epsilon = 1e-5F;  // finite, >= 0
};

// Writes y[rows,cols] and rstd[rows]. `y` may be `x`. `rstd` may be null when no backward follows.
template <typename T, typename P = T>
Status RmsNormForward(const RmsNormShape& shape, const T* x, const P* gamma, T* y, float* rstd);

// Bytes of workspace for the backward pass: one fp32 row, rounded up to 64 bytes.
size_t RmsNormWorkspaceBytes(const RmsNormShape& shape);

template <typename T, typename P = T>
struct RmsNormBackwardArgs {
  const T* dy = nullptr;
  const T* x = nullptr;
  const P* gamma = nullptr;
  const float* rstd = nullptr;
  const T* residual = nullptr;  // nullable [rows,cols]: added to dx before it is rounded
  T* dx = nullptr;              // may be dy or residual
  P* dgamma = nullptr;          // nullable (frozen parameter)
  bool accumulate = false;      // add to dgamma instead of overwriting it
};

// `workspace` is 64-byte aligned.
template <typename T, typename P = T>
Status RmsNormBackward(const RmsNormShape& shape, const RmsNormBackwardArgs<T, P>& args,
                       void* workspace, size_t workspace_bytes);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_NORMALISATION_RMS_NORM_H_
