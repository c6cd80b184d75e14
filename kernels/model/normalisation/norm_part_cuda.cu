#include "kernels/model/normalisation/norm_part_cuda.h"
#include "kernels/model/normalisation/part_checks.h"
#include "kernels/model/normalisation/rows.cuh"
#include "kernels/runtime/cuda/column_sums.cuh"
#include "kernels/runtime/cuda/elementwise.cuh"

namespace geminid::kernels {
namespace cuda {

// An element of an array; a null array counts as zeros.
__device__ inline float ElementOr0(const float* array, uint64_t index) {
  return array == nullptr ? 0.0F : array[index];
}

// The sums of x, or with `squares` of (x - mean)^2.
template <class Row, bool squares>
struct NormPartRowSums {
  static constexpr unsigned kThreads = Row::kThreads;

  __device__ void Run() const {
    __shared__ typename Row::Shared shared;
    const RowOfThread<Row> me(rows);
    const HeldRow<float, Row> from(x + me.row * cols, cols, words, me.thread);
    const float center = ElementOr0(mean, me.row);
    float sums[kRowVector] = {};
    ForEachPackOfRow(
        cols, me.thread,
        [&](uint64_t column, const RowPack<float>& in) {
          const unsigned n = ColumnsOfPack(column, cols);
#pragma unroll
          for (unsigned i = 0; i < kRowVector; ++i) {
            if constexpr (squares) {
              const float d = i < n ? in.element[i] - center : 0.0F;
              sums[i] = fmaf(d, d, sums[i]);
            } else {
              sums[i] += in.element[i];
            }
          }
        },
        from);
    const float sum = Row::Sum(sums, &shared);
    if (me.exists && me.thread == 0) out[me.row] = sum;
  }

  const float* x;
  const float* mean;
  float* out;
  uint64_t rows;
  uint64_t cols;
  bool words;  // every row is 16-byte aligned
};
GEMINID_KERNEL(geminid_norm_part_sum, NormPartRowSums<NarrowRow, false>);
GEMINID_KERNEL(geminid_norm_part_sum_wide, NormPartRowSums<WideRow, false>);
GEMINID_KERNEL(geminid_norm_part_squares, NormPartRowSums<NarrowRow, true>);
GEMINID_KERNEL(geminid_norm_part_squares_wide, NormPartRowSums<WideRow, true>);

struct NormPartMeanOp {
  __device__ void operator()(uint64_t at, unsigned n, bool /*words*/) const {
    for (unsigned i = 0; i < n; ++i) sums[at + i] /= columns;
  }

  float* sums;
  float columns;
};
GEMINID_KERNEL(geminid_norm_part_means, ForEachPack<NormPartMeanOp>);

struct NormPartInverseRootOp {
  __device__ void operator()(uint64_t at, unsigned n, bool /*words*/) const {
    for (unsigned i = 0; i < n; ++i) values[at + i] = 1.0F / sqrtf(values[at + i] + epsilon);
  }

  float* values;
  float epsilon;
};
GEMINID_KERNEL(geminid_norm_part_inverse_roots, ForEachPack<NormPartInverseRootOp>);

struct NormPartForwardOp {
  __device__ void operator()(uint64_t row, uint64_t column, unsigned n, bool words) const {
    Pack<float> values = {};
    Pack<float> scale = {};
    Pack<float> shift = {};
    LoadPack(x + row * cols + column, words, n, &values);
    LoadPack(gamma + column, words, n, &scale);
    if (beta != nullptr) LoadPack(beta + column, words, n, &shift);
    const float center = ElementOr0(mean, row);
    const float row_rstd = rstd[row];
#pragma unroll
    for (unsigned i = 0; i < kVector; ++i) {
      const float xhat = (values.element[i] - center) * row_rstd;
      values.element[i] = fmaf(xhat, scale.element[i], shift.element[i]);
    }
    StorePack(values, words, n, y + row * cols + column);
  }

  const float* x;
  const float* mean;
  const float* rstd;
  const float* gamma;
  const float* beta;
  float* y;
  uint64_t cols;
};
GEMINID_KERNEL(geminid_norm_part_forward, ForEachRowPack<NormPartForwardOp>);

template <class Row>
struct NormPartGradientRowSums {
  static constexpr unsigned kThreads = Row::kThreads;

  __device__ void Run() const {
    __shared__ typename Row::Shared shared;
    const RowOfThread<Row> me(rows);
    const uint64_t begin = me.row * cols;
    const HeldRow<float, Row> above(dy + begin, cols, words, me.thread);
    const HeldRow<float, Row> from(x + begin, cols, words, me.thread);
    const float center = ElementOr0(mean, me.row);
    const float row_rstd = rstd[me.row];
    float sums[kRowVector] = {};
    float products[kRowVector] = {};
    ForEachPackOfRow(
        cols, me.thread,
        [&](uint64_t column, const RowPack<float>& in_dy, const RowPack<float>& in_x) {
          const RowPack<float> scale = LoadRowPack(gamma, column, cols, words);
#pragma unroll
          // Columns beyond the row add nothing: dy and gamma are 0.
          for (unsigned i = 0; i < kRowVector; ++i) {
            const float g = in_dy.element[i] * scale.element[i];
            const float xhat = (in_x.element[i] - center) * row_rstd;
            sums[i] += g;
            products[i] = fmaf(g, xhat, products[i]);
          }
        },
        above, from);
    const float of_products = Row::Sum(products, &shared);
    const float of_sums = sum_g == nullptr ? 0.0F : Row::Sum(sums, &shared);
    if (!me.exists || me.thread != 0) return;
    sum_gx[me.row] = of_products;
    if (sum_g != nullptr) sum_g[me.row] = of_sums;
  }

  const float* dy;
  const float* x;
  const float* gamma;
  const float* mean;
  const float* rstd;
  float* sum_gx;
  float* sum_g;
  uint64_t rows;
  uint64_t cols;
  bool words;  // every row of every array is 16-byte aligned
};
GEMINID_KERNEL(geminid_norm_part_gradient_sums, NormPartGradientRowSums<NarrowRow>);
GEMINID_KERNEL(geminid_norm_part_gradient_sums_wide, NormPartGradientRowSums<WideRow>);

struct NormPartInputGradientOp {
  __device__ void operator()(uint64_t row, uint64_t column, unsigned n, bool words) const {
    Pack<float> above = {};
    Pack<float> from = {};
    Pack<float> scale = {};
    LoadPack(dy + row * cols + column, words, n, &above);
    LoadPack(x + row * cols + column, words, n, &from);
    LoadPack(gamma + column, words, n, &scale);
    const float center = ElementOr0(mean, row);
    const float row_rstd = rstd[row];
    const float row_g = ElementOr0(mean_g, row);
    const float row_gx = mean_gx[row];
#pragma unroll
    for (unsigned i = 0; i < kVector; ++i) {
      const float g = above.element[i] * scale.element[i];
      const float xhat = (from.element[i] - center) * row_rstd;
      above.element[i] = row_rstd * ((g - row_g) - xhat * row_gx);
    }
    StorePack(above, words, n, dx + row * cols + column);
  }

  const float* dy;
  const float* x;
  const float* gamma;
  const float* mean;
  const float* rstd;
  const float* mean_gx;
  const float* mean_g;
  float* dx;
  uint64_t cols;
};
GEMINID_KERNEL(geminid_norm_part_input_gradient, ForEachRowPack<NormPartInputGradientOp>);

// dgamma, and with two sums dbeta.
template <unsigned sums_of_column>
struct NormPartTerm {
  static constexpr unsigned kSums = sums_of_column;

  __device__ void Add(uint64_t row, uint64_t column, float* sums) const {
    const float above = dy[row * cols + column];
    const float xhat = (x[row * cols + column] - ElementOr0(mean, row)) * rstd[row];
    sums[0] = fmaf(above, xhat, sums[0]);
    if constexpr (kSums > 1) sums[1] += above;
  }

  const float* dy;
  const float* x;
  const float* mean;
  const float* rstd;
  uint64_t cols;
};
GEMINID_KERNEL(geminid_norm_part_scale_chunks, ChunkSums<NormPartTerm<1>>);
GEMINID_KERNEL(geminid_norm_part_parameter_chunks, ChunkSums<NormPartTerm<2>>);

template <bool squares>
Status LaunchNormPartSums(const NormPart& part, const float* x, const float* mean, float* out,
                          CudaStream stream) {
  const Status status = CheckNormPartSums(part, x, mean, out);
  if (status != Status::kOk || part.rows == 0) return status;
  const bool words = RowPacksLieOnWords(part.cols, {x});
  return LaunchForRow(part.cols, [&](auto row) {
    using Row = decltype(row);
    return LaunchKernel(NormPartRowSums<Row, squares>{x, mean, out, part.rows, part.cols, words},
                        BlocksFor(part.rows, Row::kRows), stream);
  });
}

}  // namespace cuda

Status NormPartSumCuda(const NormPart& part, const float* x, float* sum, CudaStream stream) {
  return cuda::LaunchNormPartSums<false>(part, x, /*mean=*/nullptr, sum, stream);
}

Status NormPartSquaresCuda(const NormPart& part, const float* x, const float* mean, float* squares,
                           CudaStream stream) {
  return cuda::LaunchNormPartSums<true>(part, x, mean, squares, stream);
}

Status NormPartMeansCuda(size_t rows, size_t columns, float* sums, CudaStream stream) {
  const Status status = CheckNormPartMeans(rows, columns, sums);
  if (status != Status::kOk) return status;
  return cuda::LaunchForEachPack(cuda::NormPartMeanOp{sums, static_cast<float>(columns)}, rows,
                                 /*words=*/false, stream);
}

Status NormPartInverseRootsCuda(size_t rows, float epsilon, float* values, CudaStream stream) {
  const Status status = CheckNormPartInverseRoots(rows, epsilon, values);
  if (status != Status::kOk) return status;
  return cuda::LaunchForEachPack(cuda::NormPartInverseRootOp{values, epsilon}, rows,
                                 /*words=*/false, stream);
}

Status NormPartForwardCuda(const NormPart& part, const float* x, const float* mean,
                           const float* rstd, const float* gamma, const float* beta, float* y,
                           CudaStream stream) {
  const Status status = CheckNormPartForward(part, x, mean, rstd, gamma, beta, y);
  if (status != Status::kOk || part.rows == 0) return status;
  return cuda::LaunchForEachRowPack(
      cuda::NormPartForwardOp{x, mean, rstd, gamma, beta, y, part.cols}, part.rows, part.cols,
      cuda::RowsLieOnWords(part.cols, {x, gamma, beta, y}), stream);
}

Status NormPartGradientSumsCuda(const NormPart& part, const NormPartBackwardArgs& args,
                                float* sum_gx, float* sum_g, CudaStream stream) {
  const Status status = CheckNormPartGradientSums(part, args, sum_gx, sum_g);
  if (status != Status::kOk || part.rows == 0) return status;
  const bool words = cuda::RowPacksLieOnWords(part.cols, {args.dy, args.x, args.gamma});
  return cuda::LaunchForRow(part.cols, [&](auto row) {
    using Row = decltype(row);
    return cuda::LaunchKernel(
        cuda::NormPartGradientRowSums<Row>{args.dy, args.x, args.gamma, args.mean, args.rstd,
                                           sum_gx, sum_g, part.rows, part.cols, words},
        cuda::BlocksFor(part.rows, Row::kRows), stream);
  });
}

size_t NormPartCudaWorkspaceBytes(const NormPart& part) {
  return cuda::ColumnSumsWorkspaceBytes(part.rows, part.cols, 2);
}

Status NormPartBackwardCuda(const NormPart& part, const NormPartBackwardArgs& args,
                            const float* mean_gx, const float* mean_g,
                            const NormPartGradients& gradients, void* workspace,
                            size_t workspace_bytes, CudaStream stream) {
  Status status = CheckNormPartBackward(part, args, mean_gx, mean_g, gradients);
  if (status == Status::kOk) {
    status = CheckWorkspace(workspace, workspace_bytes, NormPartCudaWorkspaceBytes(part));
  }
  if (status != Status::kOk) return status;
  auto* const chunks = static_cast<float*>(workspace);
  const auto sum = [&](const auto& term) {
    return cuda::LaunchColumnSums<float>(term, part.rows, part.cols, chunks,
                                         {{gradients.dgamma, gradients.dbeta}},
                                         /*accumulate=*/false, stream);
  };
  // First, because dx may be dy.
  status = gradients.dbeta == nullptr
               ? sum(cuda::NormPartTerm<1>{args.dy, args.x, args.mean, args.rstd, part.cols})
               : sum(cuda::NormPartTerm<2>{args.dy, args.x, args.mean, args.rstd, part.cols});
  if (status != Status::kOk || part.rows == 0) return status;
  return cuda::LaunchForEachRowPack(
      cuda::NormPartInputGradientOp{args.dy, args.x, args.gamma, args.mean, args.rstd, mean_gx,
                                    mean_g, gradients.dx, part.cols},
      part.rows, part.cols,
      cuda::RowsLieOnWords(part.cols, {args.dy, args.x, args.gamma, gradients.dx}), stream);
}

}  // namespace geminid::kernels
