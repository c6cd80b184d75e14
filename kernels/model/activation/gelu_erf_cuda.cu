#include "kernels/model/activation/gelu_erf.h"
#include "kernels/model/activation/gelu_erf_cuda.h"
#include "kernels/model/activation/pointwise.cuh"

namespace geminid::kernels {
namespace cuda {

// Phi(v), given e^(-v^2/2).
__device__ inline float GeluCumulative(float v, float bell) {
  const float a = fminf(fabsf(v), kGeluTailEnd);
  const float u = (a - kGeluTailCentre) / (a + kGeluTailCentre);
  float q = GeluTailTerm(0);
#pragma unroll
  for (size_t i = 1; i < kGeluTailTerms; ++i) q = fmaf(q, u, GeluTailTerm(i));
  const float tail = q * bell;
  return v < 0.0F ? tail : 1.0F - tail;
}

struct GeluErf {
  template <typename T>
  __device__ static T Value(T x) {
    const float v = Widen(x);
    return Narrow<T>(v * GeluCumulative(v, Exp(v * v * -0.5F)));
  }
  template <typename T>
  __device__ static T Gradient(T x, T dy) {
    const float v = Widen(x);
    const float bell = Exp(v * v * -0.5F);
    return Narrow<T>(Widen(dy) * fmaf(v * kGeluDensity, bell, GeluCumulative(v, bell)));
  }
};

template <typename T>
using GeluErfForwardOp = PointwiseForwardOp<T, GeluErf>;
GEMINID_KERNEL(geminid_gelu_erf_forward_fp32, ForEachPack<GeluErfForwardOp<float>>);
GEMINID_KERNEL(geminid_gelu_erf_forward_bf16, ForEachPack<GeluErfForwardOp<BFloat16>>);

template <typename T>
using GeluErfBackwardOp = PointwiseBackwardOp<T, GeluErf>;
GEMINID_KERNEL(geminid_gelu_erf_backward_fp32, ForEachPack<GeluErfBackwardOp<float>>);
GEMINID_KERNEL(geminid_gelu_erf_backward_bf16, ForEachPack<GeluErfBackwardOp<BFloat16>>);

}  // namespace cuda

template <typename T>
Status GeluErfForwardCuda(const T* x, size_t count, T* y, CudaStream stream) {
  return cuda::PointwiseForward<cuda::GeluErf>(x, count, y, stream);
}

template <typename T>
Status GeluErfBackwardCuda(const T* dy, const T* x, size_t count, T* dx, CudaStream stream) {
  return cuda::PointwiseBackward<cuda::GeluErf>(dy, x, count, dx, stream);
}

template Status GeluErfForwardCuda(const float*, size_t, float*, CudaStream);
template Status GeluErfForwardCuda(const BFloat16*, size_t, BFloat16*, CudaStream);
template Status GeluErfBackwardCuda(const float*, const float*, size_t, float*, CudaStream);
template Status GeluErfBackwardCuda(const BFloat16*, const BFloat16*, size_t, BFloat16*,
                                    CudaStream);

}  // namespace geminid::kernels
