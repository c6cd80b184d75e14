#include "kernels/model/activation/gelu_cuda.h"
#include "kernels/runtime/cuda/elementwise.cuh"
#include "kernels/runtime/cuda/math.cuh"
#include "kernels/runtime/simd/arguments.h"

namespace geminid::kernels {
namespace cuda {

inline constexpr float kTwoSqrt2OverPi = 1.5957691216057308F;  // 2 sqrt(2/pi)
inline constexpr float kGeluCubic = 0.044715F;

// sigmoid(2u), given x and x^2.
__device__ inline float GeluSigmoid(float x, float x2) {
  return Sigmoid(x * fmaf(x2, kTwoSqrt2OverPi * kGeluCubic, kTwoSqrt2OverPi));
}

template <typename T>
struct GeluForwardOp {
  __device__ void operator()(uint64_t at, unsigned n, bool words) const {
    Pack<T> pack = {};
    LoadPack(x + at, words, n, &pack);
#pragma unroll
    for (unsigned i = 0; i < kVector; ++i) {
      const float v = Widen(pack.element[i]);
      pack.element[i] = Narrow<T>(v * GeluSigmoid(v, v * v));
    }
    StorePack(pack, words, n, y + at);
  }

  const T* x;
  T* y;
};
GEMINID_KERNEL(geminid_gelu_forward_fp32, ForEachPack<GeluForwardOp<float>>);
GEMINID_KERNEL(geminid_gelu_forward_bf16, ForEachPack<GeluForwardOp<BFloat16>>);

__device__ inline float GeluDerivative(float v) {
  const float v2 = v * v;
  const float s = GeluSigmoid(v, v2);
  const float slope = fmaf(v2, 3.0F * kTwoSqrt2OverPi * kGeluCubic, kTwoSqrt2OverPi);
  // s(1-s) first: it is 0 where v * slope may overflow.
  return fmaf(v * (s * (1.0F - s)), slope, s);
}

template <typename T>
struct GeluBackwardOp {
  __device__ void operator()(uint64_t at, unsigned n, bool words) const {
    Pack<T> pack = {};
    Pack<T> gradient = {};
    LoadPack(x + at, words, n, &pack);
    LoadPack(dy + at, words, n, &gradient);
#pragma unroll
    for (unsigned i = 0; i < kVector; ++i) {
      const float derivative = GeluDerivative(Widen(pack.element[i]));
      pack.element[i] = Narrow<T>(Widen(gradient.element[i]) * derivative);
    }
    StorePack(pack, words, n, dx + at);
  }

  const T* dy;
  const T* x;
  T* dx;
};
GEMINID_KERNEL(geminid_gelu_backward_fp32, ForEachPack<GeluBackwardOp<float>>);
GEMINID_KERNEL(geminid_gelu_backward_bf16, ForEachPack<GeluBackwardOp<BFloat16>>);

}  // namespace cuda

template <typename T>
Status GeluForwardCuda(const T* x, size_t count, T* y, CudaStream stream) {
  const Status status = CheckInPlace(Buffer::Of(y, count), {Buffer::Of(x, count)});
  if (status != Status::kOk) return status;
  return cuda::LaunchForEachPack(cuda::GeluForwardOp<T>{x, y}, count,
                                 cuda::LiesOnWord(x) && cuda::LiesOnWord(y), stream);
}

template <typename T>
Status GeluBackwardCuda(const T* dy, const T* x, size_t count, T* dx, CudaStream stream) {
  const Status status =
      CheckInPlace(Buffer::Of(dx, count), {Buffer::Of(dy, count), Buffer::Of(x, count)});
  if (status != Status::kOk) return status;
  const bool words = cuda::LiesOnWord(dy) && cuda::LiesOnWord(x) && cuda::LiesOnWord(dx);
  return cuda::LaunchForEachPack(cuda::GeluBackwardOp<T>{dy, x, dx}, count, words, stream);
}

template Status GeluForwardCuda(const float*, size_t, float*, CudaStream);
template Status GeluForwardCuda(const BFloat16*, size_t, BFloat16*, CudaStream);
template Status GeluBackwardCuda(const float*, const float*, size_t, float*, CudaStream);
template Status GeluBackwardCuda(const BFloat16*, const BFloat16*, size_t, BFloat16*, CudaStream);

}  // namespace geminid::kernels
