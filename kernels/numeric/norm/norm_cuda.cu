#include <limits>

#include "kernels/numeric/norm/norm_cuda.h"
#include "kernels/runtime/common/buffers.h"
#include "kernels/runtime/cuda/pack.cuh"

namespace geminid::kernels {
namespace {

constexpr unsigned kBlockThreads = 256;
constexpr size_t kNormBlocksPerBlock = kBlockThreads / kNormLanes;
constexpr int kLoadsInFlight = 8;
constexpr unsigned kFoldThreads = 256;

// A thread is a lane of a norm block: 16 threads sum one, in the order of the host.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    SumBlocks(const T* values, size_t count, double* block_sums) {
  const size_t block =
      static_cast<size_t>(blockIdx.x) * kNormBlocksPerBlock + threadIdx.x / kNormLanes;
  const size_t begin = block * kNormBlock;
  const int lane = threadIdx.x % kNormLanes;
  double sum = 0;
  if (begin < count) {
    const size_t end = begin + kNormBlock < count ? begin + kNormBlock : count;
    size_t i = begin + lane;
    for (; i + (kLoadsInFlight - 1) * kNormLanes < end; i += kLoadsInFlight * kNormLanes) {
      T loaded[kLoadsInFlight];
#pragma unroll
      for (int k = 0; k < kLoadsInFlight; ++k) loaded[k] = values[i + k * kNormLanes];
#pragma unroll
      for (int k = 0; k < kLoadsInFlight; ++k) {
        const double x = cuda::Widen(loaded[k]);
        sum += x * x;
      }
    }
    for (; i < end; i += kNormLanes) {
      const double x = cuda::Widen(values[i]);
      sum += x * x;
    }
  }
#pragma unroll
  for (int half = kNormLanes / 2; half != 0; half /= 2) {
    sum += __shfl_down_sync(0xFFFFFFFFu, sum, half, kNormLanes);
  }
  if (lane == 0 && begin < count) block_sums[block] = sum;
}

// One thread adds, in order; the others feed it.
__global__ void __launch_bounds__(kFoldThreads)
    FoldBlocks(const double* block_sums, size_t blocks, double* total) {
  __shared__ double tile[kFoldThreads];
  double sum = *total;
  for (size_t begin = 0; begin < blocks; begin += kFoldThreads) {
    const size_t in_tile = blocks - begin < kFoldThreads ? blocks - begin : kFoldThreads;
    if (threadIdx.x < in_tile) tile[threadIdx.x] = block_sums[begin + threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) {
#pragma unroll 16
      for (size_t i = 0; i < in_tile; ++i) sum += tile[i];
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) *total = sum == sum ? sum : std::numeric_limits<double>::quiet_NaN();
}

template <typename T>
Status AddSquaresOf(const T* values, size_t count, double* workspace, size_t workspace_bytes,
                    double* total, CudaStream stream) {
  const size_t needed_bytes = SquareSumWorkspaceBytes(count);
  const Status status =
      CheckBuffers({Buffer::Of(values, count)},
                   {Buffer::Of(workspace, needed_bytes / sizeof(double)), Buffer::Of(total, 1)});
  if (status != Status::kOk) return status;
  if (workspace_bytes < needed_bytes) return Status::kInvalidParameter;
  if (count == 0) return Status::kOk;
  const size_t blocks = needed_bytes / sizeof(double);
  const auto grid = static_cast<unsigned>((blocks + kNormBlocksPerBlock - 1) / kNormBlocksPerBlock);
  const Status launched =
      cuda::LaunchKernel(SumBlocks<T>, grid, kBlockThreads, stream, values, count, workspace);
  if (launched != Status::kOk) return launched;
  return cuda::LaunchKernel(FoldBlocks, 1, kFoldThreads, stream, workspace, blocks, total);
}

}  // namespace

Status AddSquaresCuda(const BFloat16* values, size_t count, double* workspace,
                      size_t workspace_bytes, double* total, CudaStream stream) {
  return AddSquaresOf(values, count, workspace, workspace_bytes, total, stream);
}

Status AddSquaresCuda(const Float16* values, size_t count, double* workspace,
                      size_t workspace_bytes, double* total, CudaStream stream) {
  return AddSquaresOf(values, count, workspace, workspace_bytes, total, stream);
}

Status AddSquaresCuda(const float* values, size_t count, double* workspace, size_t workspace_bytes,
                      double* total, CudaStream stream) {
  return AddSquaresOf(values, count, workspace, workspace_bytes, total, stream);
}

}  // namespace geminid::kernels
