#include "kernels/model/elementwise/residual_cuda.h"
#include "kernels/runtime/cuda/elementwise.cuh"
#include "kernels/runtime/simd/arguments.h"

namespace geminid::kernels {
namespace cuda {

template <typename T>
struct ResidualAddOp {
  __device__ void operator()(uint64_t at, unsigned n, bool words) const {
    Pack<T> left = {};
    Pack<T> right = {};
    LoadPack(a + at, words, n, &left);
    LoadPack(b + at, words, n, &right);
#pragma unroll
    for (unsigned i = 0; i < kVector; ++i) {
      left.element[i] = Narrow<T>(Widen(left.element[i]) + Widen(right.element[i]));
    }
    StorePack(left, words, n, out + at);
  }

  const T* a;
  const T* b;
  T* out;
};
GEMINID_KERNEL(geminid_residual_add_fp32, ForEachPack<ResidualAddOp<float>>);
GEMINID_KERNEL(geminid_residual_add_bf16, ForEachPack<ResidualAddOp<BFloat16>>);

}  // namespace cuda

template <typename T>
Status ResidualAddCuda(const T* a, const T* b, size_t count, T* out, CudaStream stream) {
  const Status status =
      CheckInPlace(Buffer::Of(out, count), {Buffer::Of(a, count), Buffer::Of(b, count)});
  if (status != Status::kOk) return status;
  const bool words = cuda::LiesOnWord(a) && cuda::LiesOnWord(b) && cuda::LiesOnWord(out);
  return cuda::LaunchForEachPack(cuda::ResidualAddOp<T>{a, b, out}, count, words, stream);
}

template Status ResidualAddCuda(const float*, const float*, size_t, float*, CudaStream);
template Status ResidualAddCuda(const BFloat16*, const BFloat16*, size_t, BFloat16*, CudaStream);

}  // namespace geminid::kernels
