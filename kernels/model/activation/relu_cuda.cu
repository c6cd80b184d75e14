#include "kernels/model/activation/relu_cuda.h"
#include "kernels/runtime/cuda/elementwise.cuh"
#include "kernels/runtime/cuda/math.cuh"
#include "kernels/runtime/simd/arguments.h"

namespace geminid::kernels {
namespace cuda {

template <typename T>
struct ReluForwardOp {
  __device__ void operator()(uint64_t at, unsigned n, bool words) const {
    Pack<T> pack = {};
    LoadPack(x + at, words, n, &pack);
#pragma unroll
    for (unsigned i = 0; i < kVector; ++i) {
      if (Widen(pack.element[i]) <= 0.0F) pack.element[i] = Narrow<T>(0.0F);
    }
    StorePack(pack, words, n, y + at);
  }

  const T* x;
  T* y;
};
GEMINID_KERNEL(geminid_relu_forward_fp32, ForEachPack<ReluForwardOp<float>>);
GEMINID_KERNEL(geminid_relu_forward_bf16, ForEachPack<ReluForwardOp<BFloat16>>);

template <typename T>
struct ReluBackwardOp {
  __device__ void operator()(uint64_t at, unsigned n, bool words) const {
    Pack<T> pack = {};
    Pack<T> gradient = {};
    LoadPack(x + at, words, n, &pack);
    LoadPack(dy + at, words, n, &gradient);
#pragma unroll
    for (unsigned i = 0; i < kVector; ++i) {
      if (Widen(pack.element[i]) <= 0.0F) gradient.element[i] = Narrow<T>(0.0F);
    }
    StorePack(gradient, words, n, dx + at);
  }

  const T* dy;
  const T* x;
  T* dx;
};
GEMINID_KERNEL(geminid_relu_backward_fp32, ForEachPack<ReluBackwardOp<float>>);
GEMINID_KERNEL(geminid_relu_backward_bf16, ForEachPack<ReluBackwardOp<BFloat16>>);

}  // namespace cuda

template <typename T>
Status ReluForwardCuda(const T* x, size_t count, T* y, CudaStream stream) {
  const Status status = CheckInPlace(Buffer::Of(y, count), {Buffer::Of(x, count)});
  if (status != Status::kOk) return status;
  return cuda::LaunchForEachPack(cuda::ReluForwardOp<T>{x, y}, count,
                                 cuda::LiesOnWord(x) && cuda::LiesOnWord(y), stream);
}

template <typename T>
Status ReluBackwardCuda(const T* dy, const T* x, size_t count, T* dx, CudaStream stream) {
  const Status status =
      CheckInPlace(Buffer::Of(dx, count), {Buffer::Of(dy, count), Buffer::Of(x, count)});
  if (status != Status::kOk) return status;
  const bool words = cuda::LiesOnWord(dy) && cuda::LiesOnWord(x) && cuda::LiesOnWord(dx);
  return cuda::LaunchForEachPack(cuda::ReluBackwardOp<T>{dy, x, dx}, count, words, stream);
}

template Status ReluForwardCuda(const float*, size_t, float*, CudaStream);
template Status ReluForwardCuda(const BFloat16*, size_t, BFloat16*, CudaStream);
template Status ReluBackwardCuda(const float*, const float*, size_t, float*, CudaStream);
template Status ReluBackwardCuda(const BFloat16*, const BFloat16*, size_t, BFloat16*, CudaStream);

}  // namespace geminid::kernels
