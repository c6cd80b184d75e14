#include "kernels/numeric/cast/cast_cuda.h"
#include "kernels/runtime/common/buffers.h"
#include "kernels/runtime/cuda/elementwise.cuh"

namespace geminid::kernels {
namespace cuda {

template <typename From, typename To>
struct CastOp {
  __device__ void operator()(uint64_t at, unsigned n, bool words) const {
    Pack<From> in = {};
    Pack<To> out;
    LoadPack(from + at, words, n, &in);
#pragma unroll
    for (unsigned i = 0; i < kVector; ++i) out.element[i] = Narrow<To>(Widen(in.element[i]));
    StorePack(out, words, n, to + at);
  }

  const From* from;
  To* to;
};
GEMINID_KERNEL(geminid_cast_fp32_to_bf16, ForEachPack<CastOp<float, BFloat16>>);
GEMINID_KERNEL(geminid_cast_bf16_to_fp32, ForEachPack<CastOp<BFloat16, float>>);

}  // namespace cuda

namespace {

template <typename From, typename To>
Status Cast(const From* input, size_t count, To* output, CudaStream stream) {
  const Status status = CheckBuffers({Buffer::Of(input, count)}, {Buffer::Of(output, count)});
  if (status != Status::kOk) return status;
  return cuda::LaunchForEachPack(cuda::CastOp<From, To>{input, output}, count,
                                 cuda::LiesOnWord(input) && cuda::LiesOnWord(output), stream);
}

}  // namespace

Status CastToBFloat16Cuda(const float* input, size_t count, BFloat16* output, CudaStream stream) {
  return Cast(input, count, output, stream);
}

Status CastToFloatCuda(const BFloat16* input, size_t count, float* output, CudaStream stream) {
  return Cast(input, count, output, stream);
}

}  // namespace geminid::kernels
