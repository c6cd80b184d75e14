// A square that is added to a sum. Device code; included by the *_cuda.cu files alone.
#ifndef GEMINID_KERNELS_NUMERIC_NORM_SQUARES_CUH_
#define GEMINID_KERNELS_NUMERIC_NORM_SQUARES_CUH_

#include <cmath>

#include "kernels/runtime/cuda/pack.cuh"

namespace geminid::kernels::cuda {

// sum + value^2 as one fused operation. The compiler, which must not fuse, would emit two, and on
// devices with few float64 units these bound the sums. The bits are those of two operations,
// because the square of a float is exact in float64.
__device__ inline double AddSquare(double sum, float value) {
  const double x = MagnitudeOf(value);
  return fma(x, x, sum);
}

}  // namespace geminid::kernels::cuda

#endif  // GEMINID_KERNELS_NUMERIC_NORM_SQUARES_CUH_
