#include "kernels/model/normalisation/checks.h"
#include "kernels/model/normalisation/rms_norm_cuda.h"
#include "kernels/model/normalisation/rows.cuh"
#include "kernels/runtime/cuda/column_sums.cuh"

namespace geminid::kernels {
namespace cuda {

template <typename T, typename P, class Row>
struct RmsNormRows {
  static constexpr unsigned kThreads = Row::kThreads;

  __device__ void Run() const {
    __shared__ typename Row::Shared shared;
    const RowOfThread<Row> me(rows);
    const HeldRow<T, Row> from(x + me.row * cols, cols, words, me.thread);

    float squares[kRowVector] = {};
    ForEachPackOfRow(
        cols, me.thread,
        [&](uint64_t, const RowPack<T>& in) {
#pragma unroll
          for (unsigned i = 0; i < kRowVector; ++i) {
            const float v = Widen(in.element[i]);
            squares[i] = fmaf(v, v, squares[i]);
          }
        },
        from);
    const float mean_square = Row::Sum(squares, &shared) / static_cast<float>(cols);
    const float row_rstd = 1.0F / sqrtf(mean_square + epsilon);
    if (!me.exists) return;

    ForEachPackOfRow(
        cols, me.thread,
        [&](uint64_t column, const RowPack<T>& in) {
          const RowPack<P> scale = LoadRowPack(gamma, column, cols, words);
          RowPack<T> out;
#pragma unroll
          for (unsigned i = 0; i < kRowVector; ++i) {
            out.element[i] = Narrow<T>(Widen(in.element[i]) * row_rstd * Widen(scale.element[i]));
          }
          StoreRowPack(out, y + me.row * cols, column, cols, words);
        },
        from);
    if (rstd != nullptr && me.thread == 0) rstd[me.row] = row_rstd;
  }

  const T* x;
  const P* gamma;
  T* y;
  float* rstd;
  uint64_t rows;
  uint64_t cols;
  float epsilon;
  bool words;  // every row of every array is 16-byte aligned
};
GEMINID_KERNEL(geminid_rms_norm_forward_fp32, RmsNormRows<float, float, NarrowRow>);
GEMINID_KERNEL(geminid_rms_norm_forward_bf16, RmsNormRows<BFloat16, BFloat16, NarrowRow>);
GEMINID_KERNEL(geminid_rms_norm_forward_mixed, RmsNormRows<BFloat16, float, NarrowRow>);
GEMINID_KERNEL(geminid_rms_norm_forward_wide_fp32, RmsNormRows<float, float, WideRow>);
GEMINID_KERNEL(geminid_rms_norm_forward_wide_bf16, RmsNormRows<BFloat16, BFloat16, WideRow>);
GEMINID_KERNEL(geminid_rms_norm_forward_wide_mixed, RmsNormRows<BFloat16, float, WideRow>);

template <typename T, typename P, class Row>
struct RmsNormInputGradient {
  static constexpr unsigned kThreads = Row::kThreads;

  __device__ void Run() const {
    __shared__ typename Row::Shared shared;
    const RowOfThread<Row> me(rows);
    const uint64_t begin = me.row * cols;
    const HeldRow<T, Row> above(dy + begin, cols, words, me.thread);
    const HeldRow<T, Row> from(x + begin, cols, words, me.thread);
    const float row_rstd = rstd[me.row];
    const auto xhat = [&](T value) { return Widen(value) * row_rstd; };

    float products[kRowVector] = {};
    ForEachPackOfRow(
        cols, me.thread,
        [&](uint64_t column, const RowPack<T>& in_dy, const RowPack<T>& in_x) {
          const RowPack<P> scale = LoadRowPack(gamma, column, cols, words);
#pragma unroll
          for (unsigned i = 0; i < kRowVector; ++i) {
            const float g = Widen(in_dy.element[i]) * Widen(scale.element[i]);
            products[i] = fmaf(g, xhat(in_x.element[i]), products[i]);
          }
        },
        above, from);
    const float mean = Row::Sum(products, &shared) / static_cast<float>(cols);
    if (!me.exists) return;

    StoreInputGradient(InputGradientArrays<T, P>{gamma, residual, dx, begin, cols, words},
                       me.thread, above, from,
                       [&](float g, T value) { return row_rstd * (g - xhat(value) * mean); });
  }

  const T* dy;
  const T* x;
  const P* gamma;
  const float* rstd;
  const T* residual;
  T* dx;
  uint64_t rows;
  uint64_t cols;
  bool words;  // every row of every array is 16-byte aligned
};
GEMINID_KERNEL(geminid_rms_norm_backward_fp32, RmsNormInputGradient<float, float, NarrowRow>);
GEMINID_KERNEL(geminid_rms_norm_backward_bf16, RmsNormInputGradient<BFloat16, BFloat16, NarrowRow>);
GEMINID_KERNEL(geminid_rms_norm_backward_mixed, RmsNormInputGradient<BFloat16, float, NarrowRow>);
GEMINID_KERNEL(geminid_rms_norm_backward_wide_fp32, RmsNormInputGradient<float, float, WideRow>);
GEMINID_KERNEL(geminid_rms_norm_backward_wide_bf16,
               RmsNormInputGradient<BFloat16, BFloat16, WideRow>);
GEMINID_KERNEL(geminid_rms_norm_backward_wide_mixed,
               RmsNormInputGradient<BFloat16, float, WideRow>);

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
  const bool words = cuda::RowPacksLieOnWords(shape.cols, {x, gamma, y});
  return cuda::LaunchForRow(shape.cols, [&](auto row) {
    using Row = decltype(row);
    return cuda::LaunchKernel(cuda::RmsNormRows<T, P, Row>{x, gamma, y, rstd, shape.rows,
                                                           shape.cols, shape.epsilon, words},
                              cuda::BlocksFor(shape.rows, Row::kRows), stream);
  });
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
  const bool words =
      cuda::RowPacksLieOnWords(shape.cols, {args.dy, args.x, args.gamma, args.residual, args.dx});
  return cuda::LaunchForRow(shape.cols, [&](auto row) {
    using Row = decltype(row);
    return cuda::LaunchKernel(
        cuda::RmsNormInputGradient<T, P, Row>{args.dy, args.x, args.gamma, args.rstd, args.residual,
                                              args.dx, shape.rows, shape.cols, words},
        cuda::BlocksFor(shape.rows, Row::kRows), stream);
  });
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
