#include "kernels/model/activation/gelu_cuda.h"
#include "kernels/model/activation/pointwise.cuh"

namespace geminid::kernels {
namespace cuda {

inline constexpr float kTwoSqrt2OverPi = 1.5957691216057308F;  // 2 sqrt(2/pi)
inline constexpr float kGeluCubic = 0.044715F;

// sigmoid(2u), given x and x^2.
__device__ inline float GeluSigmoid(float x, float x2) {
  return Sigmoid(x * fmaf(x2, kTwoSqrt2OverPi * kGeluCubic, kTwoSqrt2OverPi));
}

__device__ inline float GeluDerivative(float v) {
  const float v2 = v * v;
  const float s = GeluSigmoid(v, v2);
  const float slope = fmaf(v2, 3.0F * kTwoSqrt2OverPi * kGeluCubic, kTwoSqrt2OverPi);
  // s(1-s) first: it is 0 where v * slope may overflow.
  return fmaf(v * (s * (1.0F - s)), slope, s);
}

struct Gelu {
  template <typename T>
  __device__ static T Value(T x) {
    const float v = Widen(x);
    return Narrow<T>(v * GeluSigmoid(v, v * v));
  }
  template <typename T>
  __device__ static T Gradient(T x, T dy) {
    return Narrow<T>(Widen(dy) * GeluDerivative(Widen(x)));
  }
};

template <typename T>
using GeluForwardOp = PointwiseForwardOp<T, Gelu>;
GEMINID_KERNEL(geminid_gelu_forward_fp32, ForEachPack<GeluForwardOp<float>>);
GEMINID_KERNEL(geminid_gelu_forward_bf16, ForEachPack<GeluForwardOp<BFloat16>>);

template <typename T>
using GeluBackwardOp = PointwiseBackwardOp<T, Gelu>;
GEMINID_KERNEL(geminid_gelu_backward_fp32, ForEachPack<GeluBackwardOp<float>>);
GEMINID_KERNEL(geminid_gelu_backward_bf16, ForEachPack<GeluBackwardOp<BFloat16>>);

}  // namespace cuda

template <typename T>
Status GeluForwardCuda(const T* x, size_t count, T* y, CudaStream stream) {
  return cuda::PointwiseForward<cuda::Gelu>(x, count, y, stream);
}

template <typename T>
Status GeluBackwardCuda(const T* dy, const T* x, size_t count, T* dx, CudaStream stream) {
  return cuda::PointwiseBackward<cuda::Gelu>(dy, x, count, dx, stream);
}

template Status GeluForwardCuda(const float*, size_t, float*, CudaStream);
template Status GeluForwardCuda(const BFloat16*, size_t, BFloat16*, CudaStream);
template Status GeluBackwardCuda(const float*, const float*, size_t, float*, CudaStream);
template Status GeluBackwardCuda(const BFloat16*, const BFloat16*, size_t, BFloat16*, CudaStream);

}  // namespace geminid::kernels
