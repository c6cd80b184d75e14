#include <limits>

#include "kernels/optimizers/step/measure.cuh"

namespace geminid::kernels::cuda {

__device__ inline double WithQuietNaN(double sum) {
  return sum == sum ? sum : std::numeric_limits<double>::quiet_NaN();
}

// Two threads add, one sum each, in order; the others feed them.
struct AddAll {
  static constexpr unsigned kThreads = 256;

  __device__ void Run() const {
    __shared__ double tile[2][kThreads];
    double* const target = threadIdx.x == 0 ? result : weight;
    const bool adds = threadIdx.x < 2 && target != nullptr;
    double sum = adds ? *target : 0;
    for (uint64_t begin = 0; begin < blocks; begin += kThreads) {
      const uint64_t left = blocks - begin < kThreads ? blocks - begin : kThreads;
      if (threadIdx.x < left) {
        tile[0][threadIdx.x] = sums[begin + threadIdx.x].result;
        tile[1][threadIdx.x] = sums[begin + threadIdx.x].weight;
      }
      __syncthreads();
      if (adds) {
#pragma unroll 16
        for (uint64_t i = 0; i < left; ++i) sum += tile[threadIdx.x][i];
      }
      __syncthreads();
    }
    if (adds) *target = WithQuietNaN(sum);
  }

  const BlockSums* sums;
  uint64_t blocks;
  double* result;
  double* weight;
};
GEMINID_KERNEL(geminid_measure_add_all, AddAll);

struct AddRows {
  static constexpr unsigned kThreads = 256;

  __device__ void Run() const {
    const uint64_t row = static_cast<uint64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (row >= blocks.rows) return;
    double sum = rows[blocks.first_row + row];
    for (uint64_t i = 0; i < blocks.blocks_per_row; ++i) {
      sum += sums[row * blocks.blocks_per_row + i].result;
    }
    rows[blocks.first_row + row] = WithQuietNaN(sum);
  }

  const BlockSums* sums;
  RowBlocks blocks;
  double* rows;
};
GEMINID_KERNEL(geminid_measure_add_rows, AddRows);

GEMINID_MEASURE_KERNELS(gradient, PlainRule<ScaledGradientRule>);
GEMINID_MEASURE_COLUMN_KERNELS(gradient);

Status AddBlocks(const BlockSums* sums, const RowBlocks& blocks, const SumTargets& targets,
                 CudaStream stream) {
  Status status = Status::kOk;
  if (targets.rows != nullptr) {
    status = LaunchKernel(AddRows{sums, blocks, targets.rows},
                          BlocksFor(blocks.rows, AddRows::kThreads), stream);
  }
  if (status == Status::kOk && (targets.result != nullptr || targets.weight != nullptr)) {
    status = LaunchKernel(AddAll{sums, blocks.blocks(), targets.result, targets.weight}, 1, stream);
  }
  return status;
}

Status MeasureScaledGradients(float grad_scale, const Measured& what, double* workspace,
                              size_t workspace_bytes, const SumTargets& targets,
                              CudaStream stream) {
  return Measure<Columns::kMaybe>(PlainRule<ScaledGradientRule>{{grad_scale}}, what, workspace,
                                  workspace_bytes, targets, stream);
}

}  // namespace geminid::kernels::cuda
