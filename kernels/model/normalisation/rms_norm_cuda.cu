#include "kernels/model/normalisation/checks.h"
#include "kernels/model/normalisation/rms_norm_cuda.h"
#include "kernels/model/normalisation/rows.cuh"
#include "kernels/runtime/cuda/column_sums.cuh"

namespace geminid::kernels {
namespace cuda {

template <typename T, typename P>
struct RmsNormRows {
  static constexpr unsigned kThreads = kRowThreads;

  __device__ void Run() const {
    const RowOfThread me(rows);
    const T* const from = x + me.row * cols;
    const float squares = SumOfRow(cols, me.lane, [&](uint64_t column, float sum) {
      const float v = Widen(from[column]);
      return fmaf(v, v, sum);
    });
    const float row_rstd = 1.0F / sqrtf(squares / static_cast<float>(cols) + epsilon);
    if (!me.exists) return;
#pragma unroll 4
    for (uint64_t column = me.lane; column < cols; column += kLanes) {
      y[me.row * cols + column] = Narrow<T>(Widen(from[column]) * row_rstd * Widen(gamma[column]));
    }
    if (rstd != nullptr && me.lane == 0) rstd[me.row] = row_rstd;
  }

  const T* x;
  const P* gamma;
  T* y;
  float* rstd;
  uint64_t rows;
  uint64_t cols;
  float epsilon;
};
GEMINID_KERNEL(geminid_rms_norm_forward_fp32, RmsNormRows<float, float>);
GEMINID_KERNEL(geminid_rms_norm_forward_bf16, RmsNormRows<BFloat16, BFloat16>);
GEMINID_KERNEL(geminid_rms_norm_forward_mixed, RmsNormRows<BFloat16, float>);

template <typename T, typename P>
struct RmsNormInputGradient {
  static constexpr unsigned kThreads = kRowThreads;

  __device__ void Run() const {
    const RowOfThread me(rows);
    const uint64_t begin = me.row * cols;
    const float row_rstd = rstd[me.row];
    const auto scaled = [&](uint64_t column) {
      return Widen(dy[begin + column]) * Widen(gamma[column]);
    };
    const auto xhat = [&](uint64_t column) { return Widen(x[begin + column]) * row_rstd; };
    const float mean = SumOfRow(cols, me.lane,
                                [&](uint64_t column, float sum) {
                                  return fmaf(scaled(column), xhat(column), sum);
                                }) /
                       static_cast<float>(cols);
    if (!me.exists) return;
#pragma unroll 4
    for (uint64_t column = me.lane; column < cols; column += kLanes) {
      float d = row_rstd * (scaled(column) - xhat(column) * mean);
      if (residual != nullptr) d = d + Widen(residual[begin + column]);
      dx[begin + column] = Narrow<T>(d);
    }
  }

  const T* dy;
  const T* x;
  const P* gamma;
  const float* rstd;
  const T* residual;
  T* dx;
  uint64_t rows;
  uint64_t cols;
};
GEMINID_KERNEL(geminid_rms_norm_backward_fp32, RmsNormInputGradient<float, float>);
GEMINID_KERNEL(geminid_rms_norm_backward_bf16, RmsNormInputGradient<BFloat16, BFloat16>);
GEMINID_KERNEL(geminid_rms_norm_backward_mixed, RmsNormInputGradient<BFloat16, float>);

template <typename T>
struct RmsNormTerm {
  static constexpr unsigned kSums = 1;  // dgamma

  __device__ void Add(uint64_t row, uint64_t column, float* sums) const {
    const float xhat = Widen(x[row * cols + column]) * rstd[row];
    sums[0] = fmaf(Widen(dy[row * cols + column]), xhat, sums[0]);
  }

  const T* dy;
  const T* x;
  const float* rstd;
  uint64_t cols;
};
GEMINID_KERNEL(geminid_rms_norm_parameter_chunks_fp32, ChunkSums<RmsNormTerm<float>>);
GEMINID_KERNEL(geminid_rms_norm_parameter_chunks_bf16, ChunkSums<RmsNormTerm<BFloat16>>);

}  // namespace cuda

template <typename T, typename P>
Status RmsNormForwardCuda(const RmsNormShape& shape, const T* x, const P* gamma, T* y, float* rstd,
                          CudaStream stream) {
  size_t count = 0;
  const Status status = CheckRmsNormForward(shape, x, gamma, y, rstd, &count);
  if (status != Status::kOk || count == 0) return status;
  return cuda::LaunchKernel(
      cuda::RmsNormRows<T, P>{x, gamma, y, rstd, shape.rows, shape.cols, shape.epsilon},
      cuda::BlocksFor(shape.rows, cuda::kRowsPerBlock), stream);
}

size_t RmsNormCudaWorkspaceBytes(const RmsNormShape& shape) {
  return cuda::ColumnSumsWorkspaceBytes(shape.rows, shape.cols, 1);
}

template <typename T, typename P>
Status RmsNormBackwardCuda(const RmsNormShape& shape, const RmsNormBackwardArgs<T, P>& args,
                           void* workspace, size_t workspace_bytes, CudaStream stream) {
  size_t count = 0;
  Status status = CheckRmsNormBackward(shape, args, &count);
  const bool parameters = args.dgamma != nullptr;
  if (status == Status::kOk && parameters) {
    status = CheckWorkspace(workspace, workspace_bytes, RmsNormCudaWorkspaceBytes(shape));
  }
  if (status != Status::kOk) return status;
  if (parameters) {  // first, because dx may be dy
    status = cuda::LaunchColumnSums<P>(cuda::RmsNormTerm<T>{args.dy, args.x, args.rstd, shape.cols},
                                       shape.rows, shape.cols, static_cast<float*>(workspace),
                                       {{args.dgamma}}, args.accumulate, stream);
  }
  if (status != Status::kOk || count == 0) return status;
  return cuda::LaunchKernel(
      cuda::RmsNormInputGradient<T, P>{args.dy, args.x, args.gamma, args.rstd, args.residual,
                                       args.dx, shape.rows, shape.cols},
      cuda::BlocksFor(shape.rows, cuda::kRowsPerBlock), stream);
}

template Status RmsNormForwardCuda(const RmsNormShape&, const float*, const float*, float*, float*,
                                   CudaStream);
template Status RmsNormForwardCuda(const RmsNormShape&, const BFloat16*, const BFloat16*, BFloat16*,
                                   float*, CudaStream);
template Status RmsNormForwardCuda(const RmsNormShape&, const BFloat16*, const float*, BFloat16*,
                                   float*, CudaStream);
template Status RmsNormBackwardCuda(const RmsNormShape&, const RmsNormBackwardArgs<float>&, void*,
                                    size_t, CudaStream);
template Status RmsNormBackwardCuda(const RmsNormShape&, const RmsNormBackwardArgs<BFloat16>&,
                                    void*, size_t, CudaStream);
template Status RmsNormBackwardCuda(const RmsNormShape&,
                                    const RmsNormBackwardArgs<BFloat16, float>&, void*, size_t,
                                    CudaStream);

}  // namespace geminid::kernels
