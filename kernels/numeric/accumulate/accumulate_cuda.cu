#include <bit>
#include <cmath>

#include "kernels/numeric/accumulate/accumulate_cuda.h"
#include "kernels/runtime/common/buffers.h"
#include "kernels/runtime/cuda/elementwise.cuh"

namespace geminid::kernels {
namespace cuda {

template <typename T>
struct AccumulateOp {
  __device__ void operator()(uint64_t at, unsigned n, bool words) const {
    Pack<T> in = {};
    Pack<float> sum = {};
    LoadPack(gradient + at, words, n, &in);
    LoadPack(accumulator + at, words, n, &sum);
#pragma unroll
    for (unsigned i = 0; i < kVector; ++i) {
      const float product = Widen(in.element[i]) * scale;
      const float total = sum.element[i] + product;
      sum.element[i] = total == total ? total : std::bit_cast<float>(uint32_t{0x7FC00000});
    }
    StorePack(sum, words, n, accumulator + at);
  }

  const T* gradient;
  float* accumulator;
  float scale;
};
GEMINID_KERNEL(geminid_accumulate_fp32, ForEachPack<AccumulateOp<float>>);
GEMINID_KERNEL(geminid_accumulate_bf16, ForEachPack<AccumulateOp<BFloat16>>);

template <typename From, typename To>
struct AddOp {
  __device__ void operator()(uint64_t at, unsigned n, bool words) const {
    Pack<From> in = {};
    Pack<To> out = {};
    LoadPack(values + at, words, n, &in);
    LoadPack(sum + at, words, n, &out);
#pragma unroll
    for (unsigned i = 0; i < kVector; ++i) {
      out.element[i] = Narrow<To>(Widen(out.element[i]) + Widen(in.element[i]));
    }
    StorePack(out, words, n, sum + at);
  }

  const From* values;
  To* sum;
};
GEMINID_KERNEL(geminid_add_fp32_to_fp32, ForEachPack<AddOp<float, float>>);
GEMINID_KERNEL(geminid_add_bf16_to_fp32, ForEachPack<AddOp<BFloat16, float>>);
GEMINID_KERNEL(geminid_add_fp32_to_bf16, ForEachPack<AddOp<float, BFloat16>>);
GEMINID_KERNEL(geminid_add_bf16_to_bf16, ForEachPack<AddOp<BFloat16, BFloat16>>);

}  // namespace cuda

namespace {

template <typename T>
Status AccumulateOf(const T* gradient, float scale, size_t count, float* accumulator,
                    CudaStream stream) {
  if (!std::isfinite(scale)) return Status::kInvalidParameter;
  const Status status =
      CheckBuffers({Buffer::Of(gradient, count)}, {Buffer::Of(accumulator, count)});
  if (status != Status::kOk) return status;
  return cuda::LaunchForEachPack(cuda::AccumulateOp<T>{gradient, accumulator, scale}, count,
                                 cuda::LiesOnWord(gradient) && cuda::LiesOnWord(accumulator),
                                 stream);
}

template <typename From, typename To>
Status Add(const From* values, size_t count, To* sum, CudaStream stream) {
  const Status status = CheckBuffers({Buffer::Of(values, count)}, {Buffer::Of(sum, count)});
  if (status != Status::kOk) return status;
  return cuda::LaunchForEachPack(cuda::AddOp<From, To>{values, sum}, count,
                                 cuda::LiesOnWord(values) && cuda::LiesOnWord(sum), stream);
}

}  // namespace

Status AccumulateCuda(const BFloat16* gradient, float scale, size_t count, float* accumulator,
                      CudaStream stream) {
  return AccumulateOf(gradient, scale, count, accumulator, stream);
}

Status AccumulateCuda(const float* gradient, float scale, size_t count, float* accumulator,
                      CudaStream stream) {
  return AccumulateOf(gradient, scale, count, accumulator, stream);
}

Status AddCuda(const float* values, size_t count, float* sum, CudaStream stream) {
  return Add(values, count, sum, stream);
}

Status AddCuda(const BFloat16* values, size_t count, float* sum, CudaStream stream) {
  return Add(values, count, sum, stream);
}

Status AddCuda(const float* values, size_t count, BFloat16* sum, CudaStream stream) {
  return Add(values, count, sum, stream);
}

Status AddCuda(const BFloat16* values, size_t count, BFloat16* sum, CudaStream stream) {
  return Add(values, count, sum, stream);
}

}  // namespace geminid::kernels
