#include <limits>

#include "kernels/numeric/norm/block_tree.cuh"
#include "kernels/numeric/norm/norm_cuda.h"
#include "kernels/numeric/norm/squares.cuh"
#include "kernels/runtime/common/buffers.h"
#include "kernels/runtime/cuda/pack.cuh"

namespace geminid::kernels {
namespace cuda {

// A thread is a lane of a norm block: 16 threads sum one, in the order of the host.
template <typename T>
struct NormBlocks {
  static constexpr unsigned kThreads = 256;
  static constexpr size_t kNormBlocksPerBlock = kThreads / kNormLanes;
  static constexpr int kLoadsInFlight = 8;

  __device__ double LaneSum(size_t begin, size_t end) const {
    double sum = 0;
    size_t i = begin;
    for (; i + (kLoadsInFlight - 1) * kNormLanes < end; i += kLoadsInFlight * kNormLanes) {
      T loaded[kLoadsInFlight];
#pragma unroll
      for (int k = 0; k < kLoadsInFlight; ++k) loaded[k] = values[i + k * kNormLanes];
#pragma unroll
      for (int k = 0; k < kLoadsInFlight; ++k) sum = AddSquare(sum, Widen(loaded[k]));
    }
    for (; i < end; i += kNormLanes) sum = AddSquare(sum, Widen(values[i]));
    return sum;
  }

  __device__ void Run() const {
    const size_t block =
        static_cast<size_t>(blockIdx.x) * kNormBlocksPerBlock + threadIdx.x / kNormLanes;
    const size_t begin = block * kNormBlock;
    const size_t end = begin + kNormBlock < count ? begin + kNormBlock : count;
    const unsigned lane = threadIdx.x % kNormLanes;
    double sum = begin < count ? LaneSum(begin + lane, end) : 0;
#pragma unroll
    for (unsigned half = kNormLanes / 2; half != 0; half /= 2) {
      sum += __shfl_down_sync(0xFFFFFFFFu, sum, half, kNormLanes);
    }
    if (lane == 0 && begin < count) block_sums[block] = sum;
  }

  const T* values;
  size_t count;
  double* block_sums;
};
GEMINID_KERNEL(geminid_norm_blocks_fp32, NormBlocks<float>);
GEMINID_KERNEL(geminid_norm_blocks_bf16, NormBlocks<BFloat16>);

// One block: its warps fold trees, which one thread adds in order.
struct NormTotal {
  static constexpr unsigned kThreads = 256;
  static constexpr unsigned kWarps = kThreads / kTreeWarp;

  __device__ void Run() const {
    __shared__ double folded[kWarps];
    const unsigned warp = threadIdx.x / kTreeWarp;
    double sum = *total;
    for (size_t begin = 0; begin < blocks; begin += kWarps * kTreeBlocks) {
      const size_t first = begin + warp * kTreeBlocks;
      const size_t left = first < blocks ? blocks - first : 0;
      const double tree = FoldTree(left < kTreeBlocks ? left : kTreeBlocks,
                                   [&](unsigned i) { return block_sums[first + i]; });
      if (threadIdx.x % kTreeWarp == 0) folded[warp] = tree;
      __syncthreads();
      if (threadIdx.x == 0) {
        for (unsigned w = 0; w < kWarps; ++w) sum += folded[w];  // those beyond the end are 0
      }
      __syncthreads();
    }
    if (threadIdx.x == 0) *total = sum == sum ? sum : std::numeric_limits<double>::quiet_NaN();
  }

  const double* block_sums;
  size_t blocks;
  double* total;
};
GEMINID_KERNEL(geminid_norm_total, NormTotal);

}  // namespace cuda

namespace {

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
  using Kernel = cuda::NormBlocks<T>;
  const Status launched =
      cuda::LaunchKernel(Kernel{values, count, workspace},
                         cuda::BlocksFor(blocks, Kernel::kNormBlocksPerBlock), stream);
  if (launched != Status::kOk) return launched;
  return cuda::LaunchKernel(cuda::NormTotal{workspace, blocks, total}, 1, stream);
}

}  // namespace

Status AddSquaresCuda(const BFloat16* values, size_t count, double* workspace,
                      size_t workspace_bytes, double* total, CudaStream stream) {
  return AddSquaresOf(values, count, workspace, workspace_bytes, total, stream);
}

Status AddSquaresCuda(const float* values, size_t count, double* workspace, size_t workspace_bytes,
                      double* total, CudaStream stream) {
  return AddSquaresOf(values, count, workspace, workspace_bytes, total, stream);
}

}  // namespace geminid::kernels
