#include "kernels/model/normalisation/checks.h"
#include "kernels/model/normalisation/layer_norm_cuda.h"
#include "kernels/model/normalisation/rows.cuh"
#include "kernels/runtime/cuda/column_sums.cuh"

namespace geminid::kernels {
namespace cuda {

template <typename T, typename P>
struct LayerNormRows {
  static constexpr unsigned kThreads = kRowThreads;

  __device__ void Run() const {
    const RowOfThread me(rows);
    const T* const from = x + me.row * cols;
    const float row_mean =
        SumOfRow(cols, me.lane,
                 [&](uint64_t column, float sum) { return sum + Widen(from[column]); }) /
        static_cast<float>(cols);
    const float squares = SumOfRow(cols, me.lane, [&](uint64_t column, float sum) {
      const float d = Widen(from[column]) - row_mean;
      return fmaf(d, d, sum);
    });
    const float row_rstd = 1.0F / sqrtf(squares / static_cast<float>(cols) + epsilon);
    if (!me.exists) return;
#pragma unroll 4
    for (uint64_t column = me.lane; column < cols; column += kLanes) {
      const float xhat = (Widen(from[column]) - row_mean) * row_rstd;
      y[me.row * cols + column] = Narrow<T>(fmaf(xhat, Widen(gamma[column]), Widen(beta[column])));
    }
    if (mean == nullptr || me.lane != 0) return;
    mean[me.row] = row_mean;
    rstd[me.row] = row_rstd;
  }

  const T* x;
  const P* gamma;
  const P* beta;
  T* y;
  float* mean;
  float* rstd;
  uint64_t rows;
  uint64_t cols;
  float epsilon;
};
GEMINID_KERNEL(geminid_layer_norm_forward_fp32, LayerNormRows<float, float>);
GEMINID_KERNEL(geminid_layer_norm_forward_bf16, LayerNormRows<BFloat16, BFloat16>);
GEMINID_KERNEL(geminid_layer_norm_forward_mixed, LayerNormRows<BFloat16, float>);

template <typename T, typename P>
struct LayerNormInputGradient {
  static constexpr unsigned kThreads = kRowThreads;

  __device__ void Run() const {
    const RowOfThread me(rows);
    const uint64_t begin = me.row * cols;
    const float row_mean = mean[me.row];
    const float row_rstd = rstd[me.row];
    const auto xhat = [&](uint64_t column) {
      return (Widen(x[begin + column]) - row_mean) * row_rstd;
    };
    const auto scaled = [&](uint64_t column) {
      return Widen(dy[begin + column]) * Widen(gamma[column]);
    };
    const auto width = static_cast<float>(cols);
    const float mean_g =
        SumOfRow(cols, me.lane, [&](uint64_t column, float sum) { return sum + scaled(column); }) /
        width;
    const float mean_gx = SumOfRow(cols, me.lane,
                                   [&](uint64_t column, float sum) {
                                     return fmaf(scaled(column), xhat(column), sum);
                                   }) /
                          width;
    if (!me.exists) return;
#pragma unroll 4
    for (uint64_t column = me.lane; column < cols; column += kLanes) {
      float d = row_rstd * ((scaled(column) - mean_g) - xhat(column) * mean_gx);
      if (residual != nullptr) d = d + Widen(residual[begin + column]);
      dx[begin + column] = Narrow<T>(d);
    }
  }

  const T* dy;
  const T* x;
  const P* gamma;
  const float* mean;
  const float* rstd;
  const T* residual;
  T* dx;
  uint64_t rows;
  uint64_t cols;
};
GEMINID_KERNEL(geminid_layer_norm_backward_fp32, LayerNormInputGradient<float, float>);
GEMINID_KERNEL(geminid_layer_norm_backward_bf16, LayerNormInputGradient<BFloat16, BFloat16>);
GEMINID_KERNEL(geminid_layer_norm_backward_mixed, LayerNormInputGradient<BFloat16, float>);

template <typename T>
struct LayerNormTerm {
  static constexpr unsigned kSums = 2;  // dgamma, dbeta

  __device__ void Add(uint64_t row, uint64_t column, float* sums) const {
    const float above = Widen(dy[row * cols + column]);
    const float xhat = (Widen(x[row * cols + column]) - mean[row]) * rstd[row];
    sums[0] = fmaf(above, xhat, sums[0]);
    sums[1] += above;
  }

  const T* dy;
  const T* x;
  const float* mean;
  const float* rstd;
  uint64_t cols;
};
GEMINID_KERNEL(geminid_layer_norm_parameter_chunks_fp32, ChunkSums<LayerNormTerm<float>>);
GEMINID_KERNEL(geminid_layer_norm_parameter_chunks_bf16, ChunkSums<LayerNormTerm<BFloat16>>);

}  // namespace cuda

template <typename T, typename P>
Status LayerNormForwardCuda(const LayerNormShape& shape, const T* x, const P* gamma, const P* beta,
                            T* y, float* mean, float* rstd, CudaStream stream) {
  size_t count = 0;
  const Status status = CheckLayerNormForward(shape, x, gamma, beta, y, mean, rstd, &count);
  if (status != Status::kOk || count == 0) return status;
  return cuda::LaunchKernel(cuda::LayerNormRows<T, P>{x, gamma, beta, y, mean, rstd, shape.rows,
                                                      shape.cols, shape.epsilon},
                            cuda::BlocksFor(shape.rows, cuda::kRowsPerBlock), stream);
}

size_t LayerNormCudaWorkspaceBytes(const LayerNormShape& shape) {
  return cuda::ColumnSumsWorkspaceBytes(shape.rows, shape.cols, 2);
}

template <typename T, typename P>
Status LayerNormBackwardCuda(const LayerNormShape& shape, const LayerNormBackwardArgs<T, P>& args,
                             void* workspace, size_t workspace_bytes, CudaStream stream) {
  size_t count = 0;
  Status status = CheckLayerNormBackward(shape, args, &count);
  const bool parameters = args.dgamma != nullptr;
  if (status == Status::kOk && parameters) {
    status = CheckWorkspace(workspace, workspace_bytes, LayerNormCudaWorkspaceBytes(shape));
  }
  if (status != Status::kOk) return status;
  if (parameters) {  // first, because dx may be dy
    status = cuda::LaunchColumnSums<P>(
        cuda::LayerNormTerm<T>{args.dy, args.x, args.mean, args.rstd, shape.cols}, shape.rows,
        shape.cols, static_cast<float*>(workspace), {{args.dgamma, args.dbeta}}, args.accumulate,
        stream);
  }
  if (status != Status::kOk || count == 0) return status;
  return cuda::LaunchKernel(
      cuda::LayerNormInputGradient<T, P>{args.dy, args.x, args.gamma, args.mean, args.rstd,
                                         args.residual, args.dx, shape.rows, shape.cols},
      cuda::BlocksFor(shape.rows, cuda::kRowsPerBlock), stream);
}

template Status LayerNormForwardCuda(const LayerNormShape&, const float*, const float*,
                                     const float*, float*, float*, float*, CudaStream);
template Status LayerNormForwardCuda(const LayerNormShape&, const BFloat16*, const BFloat16*,
                                     const BFloat16*, BFloat16*, float*, float*, CudaStream);
template Status LayerNormForwardCuda(const LayerNormShape&, const BFloat16*, const float*,
                                     const float*, BFloat16*, float*, float*, CudaStream);
template Status LayerNormBackwardCuda(const LayerNormShape&, const LayerNormBackwardArgs<float>&,
                                      void*, size_t, CudaStream);
template Status LayerNormBackwardCuda(const LayerNormShape&, const LayerNormBackwardArgs<BFloat16>&,
                                      void*, size_t, CudaStream);
template Status LayerNormBackwardCuda(const LayerNormShape&,
                                      const LayerNormBackwardArgs<BFloat16, float>&, void*, size_t,
                                      CudaStream);

}  // namespace geminid::kernels
