// Layer and RMS normalisation (layer_norm.h, rms_norm.h) of rows whose columns are sharded over
// ranks: one rank's contribution to each row's sums, and its columns, given the whole sums. fp32.
//
// RMS normalisation is layer normalisation without mean and beta: both are null, and count as 0.
#ifndef GEMINID_KERNELS_MODEL_NORMALISATION_NORM_PART_H_
#define GEMINID_KERNELS_MODEL_NORMALISATION_NORM_PART_H_

#include <cstddef>

#include "kernels/runtime/common/status.h"

namespace geminid::kernels {

struct NormPart {
  size_t rows = 0;
  size_t cols = 0;  // columns of this part
};

// sum[r] = the sum of x in row r.
Status NormPartSum(const NormPart& part, const float* x, float* sum);

// squares[r] = the sum of (x - mean[r])^2 in row r.
Status NormPartSquares(const NormPart& part, const float* x, const float* mean, float* squares);

// sums[r] /= columns: the means of whole rows from their sums.
Status NormPartMeans(size_t rows, size_t columns, float* sums);

// values[r] = 1 / sqrt(values[r] + epsilon): rstd from means of squares.
Status NormPartInverseRoots(size_t rows, float epsilon, float* values);

// y = (x - mean) rstd gamma + beta. `y` may be `x`.
Status NormPartForward(const NormPart& part, const float* x, const float* mean, const float* rstd,
                       const float* gamma, const float* beta, float* y);

struct NormPartBackwardArgs {
  const float* dy = nullptr;
  const float* x = nullptr;
  const float* gamma = nullptr;
  const float* mean = nullptr;  // of the whole rows
  const float* rstd = nullptr;
};

// sum_gx[r] and sum_g[r]: the sums of dy gamma xhat and of dy gamma in row r. `sum_g` may be null.
Status NormPartGradientSums(const NormPart& part, const NormPartBackwardArgs& args, float* sum_gx,
                            float* sum_g);

// Bytes of workspace for NormPartBackward: two fp32 rows, each rounded up to 64 bytes.
size_t NormPartWorkspaceBytes(const NormPart& part);

struct NormPartGradients {
  float* dx = nullptr;  // may be dy
  float* dgamma = nullptr;
  float* dbeta = nullptr;  // null without beta
};

// dx = rstd (g - mean_g - xhat mean_gx). The means are the sums of NormPartGradientSums over the
// whole row, divided by the row's columns; a null `mean_g` counts as 0. Overwrites all gradients.
// `workspace` is 64-byte aligned.
Status NormPartBackward(const NormPart& part, const NormPartBackwardArgs& args,
                        const float* mean_gx, const float* mean_g,
                        const NormPartGradients& gradients, void* workspace,
                        size_t workspace_bytes);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_NORMALISATION_NORM_PART_H_
