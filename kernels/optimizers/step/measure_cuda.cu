#include <limits>

#include "kernels/optimizers/step/measure.cuh"

namespace geminid::kernels::cuda {
namespace {

constexpr unsigned kFoldThreads = 256;

__device__ double WithQuietNaN(double sum) {
  return sum == sum ? sum : std::numeric_limits<double>::quiet_NaN();
}

// Two threads add, one sum each, in order; the others feed them.
__global__ void __launch_bounds__(kFoldThreads)
    AddAll(const BlockSums* sums, uint64_t blocks, double* result, double* weight) {
  __shared__ BlockSums tile[kFoldThreads];
  double sum = 0;
  if (threadIdx.x == 0 && result != nullptr) sum = *result;
  if (threadIdx.x == 1 && weight != nullptr) sum = *weight;
  for (uint64_t begin = 0; begin < blocks; begin += kFoldThreads) {
    const uint64_t left = blocks - begin < kFoldThreads ? blocks - begin : kFoldThreads;
    if (threadIdx.x < left) tile[threadIdx.x] = sums[begin + threadIdx.x];
    __syncthreads();
    if (threadIdx.x < 2) {
#pragma unroll 16
      for (uint64_t i = 0; i < left; ++i) sum += threadIdx.x == 0 ? tile[i].result : tile[i].weight;
    }
    __syncthreads();
  }
  if (threadIdx.x == 0 && result != nullptr) *result = WithQuietNaN(sum);
  if (threadIdx.x == 1 && weight != nullptr) *weight = WithQuietNaN(sum);
}

__global__ void __launch_bounds__(kFoldThreads)
    AddRows(const BlockSums* sums, const __grid_constant__ RowBlocks blocks, double* rows) {
  const uint64_t row = static_cast<uint64_t>(blockIdx.x) * kFoldThreads + threadIdx.x;
  if (row >= blocks.rows) return;
  double sum = rows[blocks.first_row + row];
  for (uint64_t i = 0; i < blocks.blocks_per_row; ++i) {
    sum += sums[row * blocks.blocks_per_row + i].result;
  }
  rows[blocks.first_row + row] = WithQuietNaN(sum);
}

}  // namespace

Status AddBlocks(const BlockSums* sums, const RowBlocks& blocks, const SumTargets& targets,
                 CudaStream stream) {
  Status status = Status::kOk;
  if (targets.rows != nullptr) {
    const auto groups = static_cast<unsigned>((blocks.rows + kFoldThreads - 1) / kFoldThreads);
    status = LaunchKernel(AddRows, groups, kFoldThreads, stream, sums, blocks, targets.rows);
  }
  if (status == Status::kOk && (targets.result != nullptr || targets.weight != nullptr)) {
    status = LaunchKernel(AddAll, 1, kFoldThreads, stream, sums, blocks.blocks(), targets.result,
                          targets.weight);
  }
  return status;
}

}  // namespace geminid::kernels::cuda
