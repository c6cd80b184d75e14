#include <cmath>

#include "kernels/numeric/norm/block_tree.cuh"
#include "kernels/optimizers/adafactor/factor_passes.h"
#include "kernels/optimizers/adafactor/factors_cuda.h"
#include "kernels/runtime/cuda/kernel.cuh"

namespace geminid::kernels {
namespace cuda {

struct AverageFactors {
  static constexpr unsigned kThreads = 256;

  __device__ void Run() const {
    const uint64_t i = static_cast<uint64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (i >= count) return;
    const double mean = sums[i] / (i < rows ? row_length : column_length) + epsilon;
    new_factors[i] = static_cast<float>(kept * old_factors[i] + rest * mean);
  }

  uint64_t count;
  uint64_t rows;
  double row_length;
  double column_length;
  double kept;
  double rest;
  double epsilon;
  const double* sums;
  const float* old_factors;
  float* new_factors;
};
GEMINID_KERNEL(geminid_factors_average, AverageFactors);

// One block.
struct MeanOfRows {
  static constexpr unsigned kThreads = 256;

  __device__ void Run() const {
    const double sum = AddInOrder<kThreads>(
        0.0, rows, [&](uint64_t row) { return static_cast<double>(factors[row]); });
    if (threadIdx.x == 0) *mean = sum / static_cast<double>(rows);
  }

  const float* factors;
  uint64_t rows;
  double* mean;
};
GEMINID_KERNEL(geminid_factors_row_mean, MeanOfRows);

// 1 / sqrt(factor), of rows relative to their mean.
struct ScalesFromFactors {
  static constexpr unsigned kThreads = 256;

  __device__ void Run() const {
    const uint64_t i = static_cast<uint64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (i >= count) return;
    const double mean = i < rows ? *row_mean : 1.0;
    scales[i] = static_cast<float>(1.0 / sqrt(factors[i] / mean));
  }

  uint64_t count;
  uint64_t rows;
  const float* factors;
  const double* row_mean;
  float* scales;
};
GEMINID_KERNEL(geminid_factors_scales, ScalesFromFactors);

}  // namespace cuda

Status AverageFactorsCuda(const FactorShape& shape, double kept, double epsilon, const double* sums,
                          const float* old_factors, float* new_factors, float* scales,
                          double* row_mean, CudaStream stream) {
  Status status = CheckFactorArrays(shape, old_factors, new_factors, sums, shape.Count(), scales);
  if (status != Status::kOk) return status;
  if (row_mean == nullptr) return Status::kNullPointer;
  const uint64_t count = shape.Count();
  const uint64_t rows = shape.Rows();
  const cuda::AverageFactors average = {
      .count = count,
      .rows = rows,
      .row_length = static_cast<double>(shape.Columns()),
      .column_length = shape.Factored() ? static_cast<double>(shape.rows) : 1.0,
      .kept = kept,
      .rest = 1.0 - kept,
      .epsilon = epsilon,
      .sums = sums,
      .old_factors = old_factors,
      .new_factors = new_factors,
  };
  const size_t blocks = cuda::BlocksFor(count, cuda::AverageFactors::kThreads);
  status = cuda::LaunchKernel(average, blocks, stream);
  if (status == Status::kOk && rows > 0) {
    status = cuda::LaunchKernel(cuda::MeanOfRows{new_factors, rows, row_mean}, 1, stream);
  }
  if (status != Status::kOk) return status;
  return cuda::LaunchKernel(cuda::ScalesFromFactors{count, rows, new_factors, row_mean, scales},
                            blocks, stream);
}

}  // namespace geminid::kernels
