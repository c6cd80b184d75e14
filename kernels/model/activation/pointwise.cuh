// Functions of one element and their gradients, on a GPU. `Function` has
//   T Value(T x), and T Gradient(T x, T dy): the gradient of x, given dy, the gradient of y.
#ifndef GEMINID_KERNELS_MODEL_ACTIVATION_POINTWISE_CUH_
#define GEMINID_KERNELS_MODEL_ACTIVATION_POINTWISE_CUH_

#include "kernels/runtime/cuda/elementwise.cuh"
#include "kernels/runtime/cuda/math.cuh"
#include "kernels/runtime/simd/arguments.h"

namespace geminid::kernels::cuda {

template <typename T, typename Function>
struct PointwiseForwardOp {
  __device__ void operator()(uint64_t at, unsigned n, bool words) const {
    Pack<T> pack = {};
    LoadPack(x + at, words, n, &pack);
#pragma unroll
    for (unsigned i = 0; i < kVector; ++i) pack.element[i] = Function::Value(pack.element[i]);
    StorePack(pack, words, n, y + at);
  }

  const T* x;
  T* y;
};

template <typename T, typename Function>
struct PointwiseBackwardOp {
  __device__ void operator()(uint64_t at, unsigned n, bool words) const {
    Pack<T> pack = {};
    Pack<T> gradient = {};
    LoadPack(x + at, words, n, &pack);
    LoadPack(dy + at, words, n, &gradient);
#pragma unroll
    for (unsigned i = 0; i < kVector; ++i) {
      gradient.element[i] = Function::Gradient(pack.element[i], gradient.element[i]);
    }
    StorePack(gradient, words, n, dx + at);
  }

  const T* dy;
  const T* x;
  T* dx;
};

template <typename Function, typename T>
Status PointwiseForward(const T* x, size_t count, T* y, CudaStream stream) {
  const Status status = CheckInPlace(Buffer::Of(y, count), {Buffer::Of(x, count)});
  if (status != Status::kOk) return status;
  return LaunchForEachPack(PointwiseForwardOp<T, Function>{x, y}, count,
                           LiesOnWord(x) && LiesOnWord(y), stream);
}

template <typename Function, typename T>
Status PointwiseBackward(const T* dy, const T* x, size_t count, T* dx, CudaStream stream) {
  const Status status =
      CheckInPlace(Buffer::Of(dx, count), {Buffer::Of(dy, count), Buffer::Of(x, count)});
  if (status != Status::kOk) return status;
  const bool words = LiesOnWord(dy) && LiesOnWord(x) && LiesOnWord(dx);
  return LaunchForEachPack(PointwiseBackwardOp<T, Function>{dy, x, dx}, count, words, stream);
}

}  // namespace geminid::kernels::cuda

#endif  // GEMINID_KERNELS_MODEL_ACTIVATION_POINTWISE_CUH_
