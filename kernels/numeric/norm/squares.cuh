// A square that is added to a sum. Device code; included by the *_cuda.cu files alone.
#ifndef GEMINID_KERNELS_NUMERIC_NORM_SQUARES_CUH_
#define GEMINID_KERNELS_NUMERIC_NORM_SQUARES_CUH_

#include <cmath>

#include "kernels/runtime/cuda/pack.cuh"

namespace geminid::kernels::cuda {

// sum + value^2. One operation, where the compiler, which must not fuse, would make two: float64 is
// what bounds sums where a device has little of it. The bits are those of two, since the square of
// a float is exact in float64.
__device__ inline double AddSquare(double sum, float value) {
  const double x = MagnitudeOf(value);
  return fma(x, x, sum);
}

}  // namespace geminid::kernels::cuda

#endif  // GEMINID_KERNELS_NUMERIC_NORM_SQUARES_CUH_
