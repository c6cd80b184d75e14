#include "kernels/model/activation/swiglu_checks.h"
#include "kernels/model/activation/swiglu_cuda.h"
#include "kernels/runtime/cuda/elementwise.cuh"
#include "kernels/runtime/cuda/math.cuh"

namespace geminid::kernels {
namespace cuda {

template <typename T>
struct SwigluForwardOp {
  __device__ void operator()(uint64_t row, uint64_t column, unsigned n, bool words) const {
    const uint64_t at = row * stride + column;
    Pack<T> g = {};
    Pack<T> u = {};
    LoadPack(gate + at, words, n, &g);
    LoadPack(up + at, words, n, &u);
#pragma unroll
    for (unsigned i = 0; i < kVector; ++i) {
      const float v = Widen(g.element[i]);
      g.element[i] = Narrow<T>(v * Sigmoid(v) * Widen(u.element[i]));
    }
    StorePack(g, words, n, y + row * cols + column);
  }

  const T* gate;
  const T* up;
  T* y;
  uint64_t cols;
  uint64_t stride;
};
GEMINID_KERNEL(geminid_swiglu_forward_fp32, ForEachRowPack<SwigluForwardOp<float>>);
GEMINID_KERNEL(geminid_swiglu_forward_bf16, ForEachRowPack<SwigluForwardOp<BFloat16>>);

template <typename T>
struct SwigluBackwardOp {
  __device__ void operator()(uint64_t row, uint64_t column, unsigned n, bool words) const {
    const uint64_t at = row * stride + column;
    Pack<T> g = {};
    Pack<T> u = {};
    Pack<T> d = {};
    LoadPack(gate + at, words, n, &g);
    LoadPack(up + at, words, n, &u);
    LoadPack(dy + row * cols + column, words, n, &d);
#pragma unroll
    for (unsigned i = 0; i < kVector; ++i) {
      const float v = Widen(g.element[i]);
      const float above = Widen(d.element[i]);
      const float s = Sigmoid(v);
      const float slope = s * fmaf(v, 1.0F - s, 1.0F);
      g.element[i] = Narrow<T>(above * Widen(u.element[i]) * slope);
      u.element[i] = Narrow<T>(above * (v * s));
    }
    StorePack(u, words, n, dup + at);
    StorePack(g, words, n, dgate + at);
  }

  const T* dy;
  const T* gate;
  const T* up;
  T* dgate;
  T* dup;
  uint64_t cols;
  uint64_t stride;
};
GEMINID_KERNEL(geminid_swiglu_backward_fp32, ForEachRowPack<SwigluBackwardOp<float>>);
GEMINID_KERNEL(geminid_swiglu_backward_bf16, ForEachRowPack<SwigluBackwardOp<BFloat16>>);

}  // namespace cuda

template <typename T>
Status SwigluForwardCuda(const SwigluShape& shape, const T* gate, const T* up, T* y,
                         CudaStream stream) {
  size_t dense = 0;
  const Status status = CheckSwigluForward(shape, gate, up, y, &dense);
  if (status != Status::kOk || dense == 0) return status;
  const bool words =
      cuda::RowsLieOnWords(shape.cols, {gate, up, y}) && shape.gate_up_stride % cuda::kVector == 0;
  const cuda::SwigluForwardOp<T> op = {gate, up, y, shape.cols, shape.gate_up_stride};
  return cuda::LaunchForEachRowPack(op, shape.rows, shape.cols, words, stream);
}

template <typename T>
Status SwigluBackwardCuda(const SwigluShape& shape, const T* dy, const T* gate, const T* up,
                          T* dgate, T* dup, CudaStream stream) {
  size_t dense = 0;
  const Status status = CheckSwigluBackward(shape, dy, gate, up, dgate, dup, &dense);
  if (status != Status::kOk || dense == 0) return status;
  const bool words = cuda::RowsLieOnWords(shape.cols, {dy, gate, up, dgate, dup}) &&
                     shape.gate_up_stride % cuda::kVector == 0;
  const cuda::SwigluBackwardOp<T> op = {dy, gate, up, dgate, dup, shape.cols, shape.gate_up_stride};
  return cuda::LaunchForEachRowPack(op, shape.rows, shape.cols, words, stream);
}

template Status SwigluForwardCuda(const SwigluShape&, const float*, const float*, float*,
                                  CudaStream);
template Status SwigluForwardCuda(const SwigluShape&, const BFloat16*, const BFloat16*, BFloat16*,
                                  CudaStream);
template Status SwigluBackwardCuda(const SwigluShape&, const float*, const float*, const float*,
                                   float*, float*, CudaStream);
template Status SwigluBackwardCuda(const SwigluShape&, const BFloat16*, const BFloat16*,
                                   const BFloat16*, BFloat16*, BFloat16*, CudaStream);

}  // namespace geminid::kernels
