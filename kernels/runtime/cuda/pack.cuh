// Accesses arrays in packs of four elements of any type, and the rest one element at a time. The
// packs of a warp are adjacent, 16 bytes each for fp32 and 8 for the 16-bit types. So every access
// of a warp covers whole lines, whatever types one thread mixes. Device code; included by the
// *_cuda.cu files alone.
#ifndef GEMINID_KERNELS_RUNTIME_CUDA_PACK_CUH_
#define GEMINID_KERNELS_RUNTIME_CUDA_PACK_CUH_

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/runtime/common/bfloat16.h"
#include "kernels/runtime/common/float16.h"
#include "kernels/runtime/cuda/kernel.cuh"

namespace geminid::kernels::cuda {

inline constexpr unsigned kThreads = 256;
inline constexpr unsigned kVector = 4;
inline constexpr unsigned kVectorsPerThread = 4;  // amortises what a thread does once
inline constexpr unsigned kBlockElements = kThreads * kVector * kVectorsPerThread;
inline constexpr size_t kWordBytes = 16;

inline bool LiesOnWord(const void* array) {
  return reinterpret_cast<uintptr_t>(array) % kWordBytes == 0;  // true for null
}

__device__ inline float Widen(float value) { return value; }
__device__ inline float Widen(BFloat16 value) { return value.ToFloat(); }
__device__ inline float Widen(Float16 value) { return value.ToFloat(); }

// |value| in float64, exact. On devices whose float64 rate is 1/64 of fp32, conversions would
// compete with the arithmetic for float64 units; there integer instructions move the bits.
__device__ inline double MagnitudeOf(float value) {
#if !defined(__CUDACC__) ||    \
    (defined(__CUDA_ARCH__) && \
     (__CUDA_ARCH__ == 750 || __CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 890))
  constexpr uint32_t kSmallestNormal = 0x00800000u;
  constexpr uint32_t kInfinity = 0x7F800000u;
  constexpr uint64_t kBiasDifference = 1023 - 127;
  const uint32_t bits = std::bit_cast<uint32_t>(value) & 0x7FFFFFFFu;
  if (bits >= kSmallestNormal && bits < kInfinity) {
    return std::bit_cast<double>((uint64_t{bits} << 29) + (kBiasDifference << 52));
  }
#endif
  return fabs(static_cast<double>(value));
}

// A float as an element of T, rounded to nearest even.
template <typename T>
__device__ T Narrow(float value) {
  return T::FromFloat(value);
}
template <>
__device__ inline float Narrow<float>(float value) {
  return value;
}

// kVector elements in registers. `words`: the array is 16-byte aligned; `count`: elements left.
template <typename T>
struct alignas(sizeof(T) * kVector) Pack {
  T element[kVector];
};

template <typename T>
__device__ void LoadPack(const T* from, bool words, unsigned count, Pack<T>* pack) {
  if (words && count == kVector) {
    *pack = *reinterpret_cast<const Pack<T>*>(from);
    return;
  }
#pragma unroll
  for (unsigned i = 0; i < kVector; ++i) {
    if (i < count) pack->element[i] = from[i];
  }
}

template <typename T>
__device__ void StorePack(const Pack<T>& pack, bool words, unsigned count, T* to) {
  if (words && count == kVector) {
    *reinterpret_cast<Pack<T>*>(to) = pack;
    return;
  }
#pragma unroll
  for (unsigned i = 0; i < kVector; ++i) {
    if (i < count) to[i] = pack.element[i];
  }
}

}  // namespace geminid::kernels::cuda

#endif  // GEMINID_KERNELS_RUNTIME_CUDA_PACK_CUH_
