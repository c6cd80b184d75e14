// Functions and sums of single elements with the bits of kernels/runtime/simd/f32x16-inl.h on
// instruction sets that have FMA. Device code; included by the *_cuda.cu files alone.
#ifndef GEMINID_KERNELS_RUNTIME_CUDA_MATH_CUH_
#define GEMINID_KERNELS_RUNTIME_CUDA_MATH_CUH_

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/runtime/cuda/kernel.cuh"

namespace geminid::kernels::cuda {

// e^x by the steps of the host's Exp, where they are explained.
__device__ inline float Exp(float x) {
  if (x != x) return x;
  const float clamped = fminf(fmaxf(x, -110.0F), 100.0F);
  const float n = rintf(clamped * 1.44269504088896341F);
  float r = fmaf(-n, 0.693359375F, clamped);
  r = fmaf(-n, -2.12194440e-4F, r);
  float y = 1.9875691500e-4F;
  y = fmaf(y, r, 1.3981999507e-3F);
  y = fmaf(y, r, 8.3334519073e-3F);
  y = fmaf(y, r, 4.1665795894e-2F);
  y = fmaf(y, r, 1.6666665459e-1F);
  y = fmaf(y, r, 5.0000001201e-1F);
  y = fmaf(y, r * r, r) + 1.0F;
  const auto exponent = static_cast<int>(n);
  const int first = exponent >> 1;
  const int second = exponent - first;
  y *= std::bit_cast<float>((first + 127) << 23);
  return y * std::bit_cast<float>((second + 127) << 23);
}

// 1 / (1 + e^-x).
__device__ inline float Sigmoid(float x) { return 1.0F / (1.0F + Exp(0.0F - x)); }

// The host's lanes of a vector are threads here: half a warp.
inline constexpr unsigned kLanes = 16;

// Returns the sum of the half warp's values to each of its threads: lane i + lane i+8, then +4, +2,
// +1. All threads of the warp call it.
__device__ inline float SumLanes(float value) {
#pragma unroll
  for (unsigned half = kLanes / 2; half != 0; half /= 2) {
    value += __shfl_xor_sync(0xFFFFFFFFu, value, half, kLanes);
  }
  return value;
}

__device__ inline float MaxLane(float value) {
#pragma unroll
  for (unsigned half = kLanes / 2; half != 0; half /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFu, value, half, kLanes));
  }
  return value;
}

}  // namespace geminid::kernels::cuda

#endif  // GEMINID_KERNELS_RUNTIME_CUDA_MATH_CUH_
