#include "kernels/runtime/cuda/column_sums.cuh"

namespace geminid::kernels::cuda {

template <typename T>
struct AddChunks {
  static constexpr unsigned kThreads = 64;  // so that few columns make many blocks

  __device__ void Run() const {
    const uint64_t at = static_cast<uint64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (at >= sums * cols) return;
    const uint64_t which = at / cols;
    const uint64_t column = at % cols;
    float sum = 0;
#pragma unroll 8
    for (uint64_t chunk = 0; chunk < chunks; ++chunk) {
      sum += partial[(which * chunks + chunk) * cols + column];
    }
    T* const to = (which == 0 ? first : second) + column;
    *to = Narrow<T>(accumulate ? Widen(*to) + sum : sum);
  }

  const float* partial;
  uint64_t sums;
  uint64_t chunks;
  uint64_t cols;
  T* first;
  T* second;
  bool accumulate;
};
GEMINID_KERNEL(geminid_add_row_chunks_fp32, AddChunks<float>);
GEMINID_KERNEL(geminid_add_row_chunks_bf16, AddChunks<BFloat16>);

template <typename T>
Status AddRowChunks(const float* partial, size_t sums, size_t chunks, size_t cols,
                    const ColumnTargets<T>& targets, bool accumulate, CudaStream stream) {
  const AddChunks<T> kernel = {partial,        sums,           chunks,    cols,
                               targets.out[0], targets.out[1], accumulate};
  return LaunchKernel(kernel, BlocksFor(sums * cols, kernel.kThreads), stream);
}

template Status AddRowChunks(const float*, size_t, size_t, size_t, const ColumnTargets<float>&,
                             bool, CudaStream);
template Status AddRowChunks(const float*, size_t, size_t, size_t, const ColumnTargets<BFloat16>&,
                             bool, CudaStream);

}  // namespace geminid::kernels::cuda
