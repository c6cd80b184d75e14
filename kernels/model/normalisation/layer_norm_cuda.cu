#include "kernels/model/normalisation/checks.h"
#include "kernels/model/normalisation/layer_norm_cuda.h"
#include "kernels/model/normalisation/rows.cuh"
#include "kernels/runtime/cuda/column_sums.cuh"

namespace geminid::kernels {
namespace cuda {

template <typename T, typename P, class Row>
struct LayerNormRows {
  static constexpr unsigned kThreads = Row::kThreads;

  __device__ void Run() const {
    __shared__ typename Row::Shared shared;
    const RowOfThread<Row> me(rows);
    const HeldRow<T, Row> from(x + me.row * cols, cols, words, me.thread);
    const auto width = static_cast<float>(cols);

    float sums[kRowVector] = {};
    ForEachPackOfRow(
        cols, me.thread,
        [&](uint64_t, const RowPack<T>& in) {
#pragma unroll
          for (unsigned i = 0; i < kRowVector; ++i) sums[i] += Widen(in.element[i]);
        },
        from);
    const float row_mean = Row::Sum(sums, &shared) / width;

    float squares[kRowVector] = {};
    ForEachPackOfRow(
        cols, me.thread,
        [&](uint64_t column, const RowPack<T>& in) {
          const unsigned n = ColumnsOfPack(column, cols);
#pragma unroll
          for (unsigned i = 0; i < kRowVector; ++i) {
            const float d = i < n ? Widen(in.element[i]) - row_mean : 0.0F;
            squares[i] = fmaf(d, d, squares[i]);
          }
        },
        from);
    const float row_rstd = 1.0F / sqrtf(Row::Sum(squares, &shared) / width + epsilon);
    if (!me.exists) return;

    ForEachPackOfRow(
        cols, me.thread,
        [&](uint64_t column, const RowPack<T>& in) {
          const RowPack<P> scale = LoadRowPack(gamma, column, cols, words);
          const RowPack<P> shift = LoadRowPack(beta, column, cols, words);
          RowPack<T> out;
#pragma unroll
          for (unsigned i = 0; i < kRowVector; ++i) {
            const float xhat = (Widen(in.element[i]) - row_mean) * row_rstd;
            out.element[i] =
                Narrow<T>(fmaf(xhat, Widen(scale.element[i]), Widen(shift.element[i])));
          }
          StoreRowPack(out, y + me.row * cols, column, cols, words);
        },
        from);
    if (mean == nullptr || me.thread != 0) return;
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
  bool words;  // every row of every array is 16-byte aligned
};
GEMINID_KERNEL(geminid_layer_norm_forward_fp32, LayerNormRows<float, float, NarrowRow>);
GEMINID_KERNEL(geminid_layer_norm_forward_bf16, LayerNormRows<BFloat16, BFloat16, NarrowRow>);
GEMINID_KERNEL(geminid_layer_norm_forward_mixed, LayerNormRows<BFloat16, float, NarrowRow>);
GEMINID_KERNEL(geminid_layer_norm_forward_wide_fp32, LayerNormRows<float, float, WideRow>);
GEMINID_KERNEL(geminid_layer_norm_forward_wide_bf16, LayerNormRows<BFloat16, BFloat16, WideRow>);
GEMINID_KERNEL(geminid_layer_norm_forward_wide_mixed, LayerNormRows<BFloat16, float, WideRow>);

template <typename T, typename P, class Row>
struct LayerNormInputGradient {
  static constexpr unsigned kThreads = Row::kThreads;

  __device__ void Run() const {
    __shared__ typename Row::Shared shared;
    const RowOfThread<Row> me(rows);
    const uint64_t begin = me.row * cols;
    const HeldRow<T, Row> above(dy + begin, cols, words, me.thread);
    const HeldRow<T, Row> from(x + begin, cols, words, me.thread);
    const float row_mean = mean[me.row];
    const float row_rstd = rstd[me.row];
    const auto xhat = [&](T value) { return (Widen(value) - row_mean) * row_rstd; };
    const auto width = static_cast<float>(cols);

    float sums[kRowVector] = {};
    float products[kRowVector] = {};
    ForEachPackOfRow(
        cols, me.thread,
        [&](uint64_t column, const RowPack<T>& in_dy, const RowPack<T>& in_x) {
          const RowPack<P> scale = LoadRowPack(gamma, column, cols, words);
#pragma unroll
          // Columns beyond the row add nothing: dy and gamma are 0.
          for (unsigned i = 0; i < kRowVector; ++i) {
            const float g = Widen(in_dy.element[i]) * Widen(scale.element[i]);
            sums[i] += g;
            products[i] = fmaf(g, xhat(in_x.element[i]), products[i]);
          }
        },
        above, from);
    const float mean_g = Row::Sum(sums, &shared) / width;
    const float mean_gx = Row::Sum(products, &shared) / width;
    if (!me.exists) return;

    StoreInputGradient(
        InputGradientArrays<T, P>{gamma, residual, dx, begin, cols, words}, me.thread, above, from,
        [&](float g, T value) { return row_rstd * ((g - mean_g) - xhat(value) * mean_gx); });
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
  bool words;  // every row of every array is 16-byte aligned
};
GEMINID_KERNEL(geminid_layer_norm_backward_fp32, LayerNormInputGradient<float, float, NarrowRow>);
GEMINID_KERNEL(geminid_layer_norm_backward_bf16,
               LayerNormInputGradient<BFloat16, BFloat16, NarrowRow>);
GEMINID_KERNEL(geminid_layer_norm_backward_mixed,
               LayerNormInputGradient<BFloat16, float, NarrowRow>);
GEMINID_KERNEL(geminid_layer_norm_backward_wide_fp32,
               LayerNormInputGradient<float, float, WideRow>);
GEMINID_KERNEL(geminid_layer_norm_backward_wide_bf16,
               LayerNormInputGradient<BFloat16, BFloat16, WideRow>);
GEMINID_KERNEL(geminid_layer_norm_backward_wide_mixed,
               LayerNormInputGradient<BFloat16, float, WideRow>);

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
  const bool words = cuda::RowPacksLieOnWords(shape.cols, {x, gamma, beta, y});
  return cuda::LaunchForRow(shape.cols, [&](auto row) {
    using Row = decltype(row);
    return cuda::LaunchKernel(
        cuda::LayerNormRows<T, P, Row>{x, gamma, beta, y, mean, rstd, shape.rows, shape.cols,
                                       shape.epsilon, words},
        cuda::BlocksFor(shape.rows, Row::kRows), stream);
  });
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
  const bool words =
      cuda::RowPacksLieOnWords(shape.cols, {args.dy, args.x, args.gamma, args.residual, args.dx});
  return cuda::LaunchForRow(shape.cols, [&](auto row) {
    using Row = decltype(row);
    return cuda::LaunchKernel(
        cuda::LayerNormInputGradient<T, P, Row>{args.dy, args.x, args.gamma, args.mean, args.rstd,
                                                args.residual, args.dx, shape.rows, shape.cols,
                                                words},
        cuda::BlocksFor(shape.rows, Row::kRows), stream);
  });
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
