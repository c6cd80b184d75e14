#include "kernels/model/activation/relu_cuda.h"
#include "kernels/model/activation/pointwise.cuh"

namespace geminid::kernels {
namespace cuda {

struct Relu {
  template <typename T>
  __device__ static T Value(T x) {
    return Widen(x) <= 0.0F ? Narrow<T>(0.0F) : x;
  }
  template <typename T>
  __device__ static T Gradient(T x, T dy) {
    return Widen(x) <= 0.0F ? Narrow<T>(0.0F) : dy;
  }
};

template <typename T>
using ReluForwardOp = PointwiseForwardOp<T, Relu>;
GEMINID_KERNEL(geminid_relu_forward_fp32, ForEachPack<ReluForwardOp<float>>);
GEMINID_KERNEL(geminid_relu_forward_bf16, ForEachPack<ReluForwardOp<BFloat16>>);

template <typename T>
using ReluBackwardOp = PointwiseBackwardOp<T, Relu>;
GEMINID_KERNEL(geminid_relu_backward_fp32, ForEachPack<ReluBackwardOp<float>>);
GEMINID_KERNEL(geminid_relu_backward_bf16, ForEachPack<ReluBackwardOp<BFloat16>>);

}  // namespace cuda

template <typename T>
Status ReluForwardCuda(const T* x, size_t count, T* y, CudaStream stream) {
  return cuda::PointwiseForward<cuda::Relu>(x, count, y, stream);
}

template <typename T>
Status ReluBackwardCuda(const T* dy, const T* x, size_t count, T* dx, CudaStream stream) {
  return cuda::PointwiseBackward<cuda::Relu>(dy, x, count, dx, stream);
}

template Status ReluForwardCuda(const float*, size_t, float*, CudaStream);
template Status ReluForwardCuda(const BFloat16*, size_t, BFloat16*, CudaStream);
template Status ReluBackwardCuda(const float*, const float*, size_t, float*, CudaStream);
template Status ReluBackwardCuda(const BFloat16*, const BFloat16*, size_t, BFloat16*, CudaStream);

}  // namespace geminid::kernels
