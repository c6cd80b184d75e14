#include "kernels/model/rotary/checks.h"
#include "kernels/model/rotary/rotary_cuda.h"
#include "kernels/runtime/cuda/pack.cuh"

namespace geminid::kernels {
namespace cuda {

// A block rotates one token.
template <typename T>
struct RotateToken {
  static constexpr unsigned kThreads = cuda::kThreads;

  __device__ void Run() const {
    const uint64_t token = blockIdx.x;
    const uint64_t row = (first_position + token % sequence) * half;
    T* const token_heads = x + token * token_stride;
    for (unsigned i = threadIdx.x; i < heads * half; i += kThreads) {
      const unsigned head = i / half;
      const unsigned at = i - head * half;
      T* const low = token_heads + static_cast<uint64_t>(head) * head_stride + at;
      T* const high = low + half;
      const float c = cos[row + at];
      const float s = sin[row + at] * sign;
      const float a = Widen(*low);
      const float b = Widen(*high);
      *low = Narrow<T>(a * c - b * s);
      *high = Narrow<T>(b * c + a * s);
    }
  }

  const float* cos;
  const float* sin;
  T* x;
  uint64_t sequence;
  uint64_t token_stride;
  uint64_t first_position;
  unsigned heads;
  unsigned half;  // of the rotated elements of a head
  unsigned head_stride;
  float sign;
};
GEMINID_KERNEL(geminid_rotary_fp32, RotateToken<float>);
GEMINID_KERNEL(geminid_rotary_bf16, RotateToken<BFloat16>);

}  // namespace cuda

namespace {

template <typename T>
Status Rotate(const RotaryShape& shape, const float* cos, const float* sin, float sign, T* x,
              CudaStream stream) {
  const Status status = CheckRotate(shape, cos, sin, x);
  if (status != Status::kOk || shape.batch * shape.sequence == 0) return status;
  constexpr size_t kTokenElementsMax = size_t{1} << 31;  // so that a thread can count in 32 bits
  if (shape.heads * shape.HeadStride() > kTokenElementsMax) return Status::kUnsupported;
  const cuda::RotateToken<T> kernel = {cos,
                                       sin,
                                       x,
                                       shape.sequence,
                                       shape.token_stride,
                                       shape.first_position,
                                       static_cast<unsigned>(shape.heads),
                                       static_cast<unsigned>(shape.head_dim / 2),
                                       static_cast<unsigned>(shape.HeadStride()),
                                       sign};
  return cuda::LaunchKernel(kernel, shape.batch * shape.sequence, stream);
}

}  // namespace

template <typename T>
Status RotaryForwardCuda(const RotaryShape& shape, const float* cos, const float* sin, T* x,
                         CudaStream stream) {
  return Rotate(shape, cos, sin, 1.0F, x, stream);
}

template <typename T>
Status RotaryBackwardCuda(const RotaryShape& shape, const float* cos, const float* sin, T* dx,
                          CudaStream stream) {
  return Rotate(shape, cos, sin, -1.0F, dx, stream);
}

template Status RotaryForwardCuda(const RotaryShape&, const float*, const float*, float*,
                                  CudaStream);
template Status RotaryForwardCuda(const RotaryShape&, const float*, const float*, BFloat16*,
                                  CudaStream);
template Status RotaryBackwardCuda(const RotaryShape&, const float*, const float*, float*,
                                   CudaStream);
template Status RotaryBackwardCuda(const RotaryShape&, const float*, const float*, BFloat16*,
                                   CudaStream);

}  // namespace geminid::kernels
