#include "kernels/model/dropout/dropout_cuda.h"
#include "kernels/runtime/cuda/elementwise.cuh"
#include "kernels/runtime/simd/arguments.h"

namespace geminid::kernels {
namespace cuda {

template <typename T, bool kAdds>
struct DropoutOp {
  __device__ void operator()(uint64_t at, unsigned n, bool words) const {
    Pack<T> values = {};
    Pack<T> sums = {};
    LoadPack(x + at, words, n, &values);
    if (kAdds) LoadPack(y + at, words, n, &sums);
    uint64_t draw = pattern.Draw(first + at);
#pragma unroll
    for (unsigned i = 0; i < kVector; ++i) {
      const uint64_t element = first + at + i;
      if (i != 0 && element % DropoutPattern::kElementsPerDraw == 0) draw = pattern.Draw(element);
      const float value = Widen(values.element[i]) * pattern.Factor(draw, element);
      values.element[i] = Narrow<T>(kAdds ? Widen(sums.element[i]) + value : value);
    }
    StorePack(values, words, n, y + at);
  }

  DropoutPattern pattern;
  uint64_t first;
  const T* x;
  T* y;
};
GEMINID_KERNEL(geminid_dropout_fp32, ForEachPack<DropoutOp<float, false>>);
GEMINID_KERNEL(geminid_dropout_bf16, ForEachPack<DropoutOp<BFloat16, false>>);
GEMINID_KERNEL(geminid_dropout_add_fp32, ForEachPack<DropoutOp<float, true>>);
GEMINID_KERNEL(geminid_dropout_add_bf16, ForEachPack<DropoutOp<BFloat16, true>>);

template <bool kAdds, typename T>
Status LaunchDropout(const DropoutPattern& pattern, uint64_t first, size_t count, const T* x, T* y,
                     CudaStream stream) {
  return LaunchForEachPack(DropoutOp<T, kAdds>{pattern, first, x, y}, count,
                           LiesOnWord(x) && LiesOnWord(y), stream);
}

}  // namespace cuda

template <typename T>
Status DropoutCuda(const DropoutPattern& pattern, uint64_t first, size_t count, const T* x, T* y,
                   CudaStream stream) {
  const Status status = CheckInPlace(Buffer::Of(y, count), {Buffer::Of(x, count)});
  if (status != Status::kOk) return status;
  return cuda::LaunchDropout<false>(pattern, first, count, x, y, stream);
}

template <typename T>
Status AddDropoutCuda(const DropoutPattern& pattern, uint64_t first, size_t count, const T* x,
                      T* sum, CudaStream stream) {
  const Status status = CheckBuffers({Buffer::Of(x, count)}, {Buffer::Of(sum, count)});
  if (status != Status::kOk) return status;
  return cuda::LaunchDropout<true>(pattern, first, count, x, sum, stream);
}

template Status DropoutCuda(const DropoutPattern&, uint64_t, size_t, const float*, float*,
                            CudaStream);
template Status DropoutCuda(const DropoutPattern&, uint64_t, size_t, const BFloat16*, BFloat16*,
                            CudaStream);
template Status AddDropoutCuda(const DropoutPattern&, uint64_t, size_t, const float*, float*,
                               CudaStream);
template Status AddDropoutCuda(const DropoutPattern&, uint64_t, size_t, const BFloat16*, BFloat16*,
                               CudaStream);

}  // namespace geminid::kernels
