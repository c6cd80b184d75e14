#include "kernels/model/elementwise/bias_cuda.h"
#include "kernels/runtime/cuda/column_sums.cuh"
#include "kernels/runtime/cuda/elementwise.cuh"
#include "kernels/runtime/simd/arguments.h"

namespace geminid::kernels {
namespace cuda {

template <typename T>
struct BiasAddOp {
  __device__ void operator()(uint64_t row, uint64_t column, unsigned n, bool words) const {
    Pack<T> values = {};
    Pack<T> added = {};
    LoadPack(x + row * cols + column, words, n, &values);
    LoadPack(bias + column, words, n, &added);
#pragma unroll
    for (unsigned i = 0; i < kVector; ++i) {
      values.element[i] = Narrow<T>(Widen(values.element[i]) + Widen(added.element[i]));
    }
    StorePack(values, words, n, x + row * cols + column);
  }

  const T* bias;
  T* x;
  uint64_t cols;
};
GEMINID_KERNEL(geminid_bias_add_fp32, ForEachRowPack<BiasAddOp<float>>);
GEMINID_KERNEL(geminid_bias_add_bf16, ForEachRowPack<BiasAddOp<BFloat16>>);

template <typename T>
struct ColumnTerm {
  static constexpr unsigned kSums = 1;

  __device__ void Add(uint64_t row, uint64_t column, float* sums) const {
    sums[0] += Widen(x[row * cols + column]);
  }

  const T* x;
  uint64_t cols;
};
GEMINID_KERNEL(geminid_column_sum_chunks_fp32, ChunkSums<ColumnTerm<float>>);
GEMINID_KERNEL(geminid_column_sum_chunks_bf16, ChunkSums<ColumnTerm<BFloat16>>);

}  // namespace cuda

template <typename T>
Status BiasAddCuda(size_t rows, size_t cols, const T* bias, T* x, CudaStream stream) {
  size_t count = 0;
  Status status = CheckedProduct(rows, cols, &count);
  if (status != Status::kOk) return status;
  status = CheckBuffers({Buffer::Of(bias, cols)}, {Buffer::Of(x, count)});
  if (status != Status::kOk || count == 0) return status;
  return cuda::LaunchForEachRowPack(cuda::BiasAddOp<T>{bias, x, cols}, rows, cols,
                                    cuda::RowsLieOnWords(cols, {bias, x}), stream);
}

size_t ColumnSumCudaWorkspaceBytes(size_t rows, size_t cols) {
  return cuda::ColumnSumsWorkspaceBytes(rows, cols, 1);
}

namespace {

template <typename T, typename Out>
Status SumColumns(size_t rows, size_t cols, const T* x, Out* out, bool accumulate, void* workspace,
                  size_t workspace_bytes, CudaStream stream) {
  size_t count = 0;
  Status status = CheckedProduct(rows, cols, &count);
  if (status != Status::kOk) return status;
  status = CheckBuffers({Buffer::Of(x, count)}, {Buffer::Of(out, cols)});
  if (status != Status::kOk) return status;
  status = CheckWorkspace(workspace, workspace_bytes, ColumnSumCudaWorkspaceBytes(rows, cols));
  if (status != Status::kOk) return status;
  return cuda::LaunchColumnSums<Out>(cuda::ColumnTerm<T>{x, cols}, rows, cols,
                                     static_cast<float*>(workspace), {{out}}, accumulate, stream);
}

}  // namespace

template <typename T>
Status ColumnSumCuda(size_t rows, size_t cols, const T* x, T* out, bool accumulate, void* workspace,
                     size_t workspace_bytes, CudaStream stream) {
  return SumColumns(rows, cols, x, out, accumulate, workspace, workspace_bytes, stream);
}

template <typename T>
Status ColumnSumWideCuda(size_t rows, size_t cols, const T* x, float* out, void* workspace,
                         size_t workspace_bytes, CudaStream stream) {
  return SumColumns(rows, cols, x, out, /*accumulate=*/false, workspace, workspace_bytes, stream);
}

template Status BiasAddCuda(size_t, size_t, const float*, float*, CudaStream);
template Status BiasAddCuda(size_t, size_t, const BFloat16*, BFloat16*, CudaStream);
template Status ColumnSumCuda(size_t, size_t, const float*, float*, bool, void*, size_t,
                              CudaStream);
template Status ColumnSumCuda(size_t, size_t, const BFloat16*, BFloat16*, bool, void*, size_t,
                              CudaStream);
template Status ColumnSumWideCuda(size_t, size_t, const float*, float*, void*, size_t, CudaStream);
template Status ColumnSumWideCuda(size_t, size_t, const BFloat16*, float*, void*, size_t,
                                  CudaStream);

}  // namespace geminid::kernels
