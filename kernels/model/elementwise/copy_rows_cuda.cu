#include "kernels/model/elementwise/copy_rows_cuda.h"
#include "kernels/runtime/cuda/elementwise.cuh"
#include "kernels/runtime/simd/arguments.h"

namespace geminid::kernels {
namespace cuda {

template <typename T>
struct CopyRowsOp {
  __device__ void operator()(uint64_t row, uint64_t column, unsigned n, bool words) const {
    Pack<T> values = {};
    LoadPack(from + row * from_stride + column, words, n, &values);
    StorePack(values, words, n, to + row * to_stride + column);
  }

  const T* from;
  T* to;
  uint64_t from_stride;
  uint64_t to_stride;
};
GEMINID_KERNEL(geminid_copy_rows_fp32, ForEachRowPack<CopyRowsOp<float>>);
GEMINID_KERNEL(geminid_copy_rows_bf16, ForEachRowPack<CopyRowsOp<BFloat16>>);

}  // namespace cuda

template <typename T>
Status CopyRowsCuda(size_t rows, size_t cols, const T* from, size_t from_stride, T* to,
                    size_t to_stride, CudaStream stream) {
  if (rows == 0 || cols == 0) return Status::kOk;
  if (from_stride < cols || to_stride < cols) return Status::kInvalidShape;
  size_t from_count = 0;
  size_t to_count = 0;
  Status status = CheckedProduct(rows, from_stride, &from_count);
  if (status == Status::kOk) status = CheckedProduct(rows, to_stride, &to_count);
  if (status != Status::kOk) return status;
  status = CheckBuffers({Buffer::Of(from, from_count - (from_stride - cols))},
                        {Buffer::Of(to, to_count - (to_stride - cols))});
  if (status != Status::kOk) return status;
  const bool words = from_stride % cuda::kVector == 0 && to_stride % cuda::kVector == 0 &&
                     cuda::LiesOnWord(from) && cuda::LiesOnWord(to);
  return cuda::LaunchForEachRowPack(cuda::CopyRowsOp<T>{from, to, from_stride, to_stride}, rows,
                                    cols, words, stream);
}

template Status CopyRowsCuda(size_t, size_t, const float*, size_t, float*, size_t, CudaStream);
template Status CopyRowsCuda(size_t, size_t, const BFloat16*, size_t, BFloat16*, size_t,
                             CudaStream);

}  // namespace geminid::kernels
