#include <bit>

#include "kernels/numeric/split_master/split_master.h"
#include "kernels/numeric/split_master/split_master_cuda.h"
#include "kernels/runtime/common/buffers.h"
#include "kernels/runtime/cuda/elementwise.cuh"

namespace geminid::kernels {
namespace cuda {

struct SplitMasterOp {
  __device__ void operator()(uint64_t at, unsigned n, bool words) const {
    Pack<float> in = {};
    Pack<BFloat16> weights;
    Pack<int16_t> remainders;
    LoadPack(master + at, words, n, &in);
#pragma unroll
    for (unsigned i = 0; i < kVector; ++i) {
      const SplitFloat split = SplitMasterBits(std::bit_cast<uint32_t>(in.element[i]));
      weights.element[i] = split.weight;
      remainders.element[i] = split.remainder;
    }
    StorePack(weights, words, n, weight + at);
    if (remainder != nullptr) StorePack(remainders, words, n, remainder + at);
  }

  const float* master;
  BFloat16* weight;
  int16_t* remainder;
};
GEMINID_KERNEL(geminid_split_master, ForEachPack<SplitMasterOp>);

struct JoinMasterOp {
  __device__ void operator()(uint64_t at, unsigned n, bool words) const {
    Pack<BFloat16> weights = {};
    Pack<int16_t> remainders = {};
    Pack<float> out;
    LoadPack(weight + at, words, n, &weights);
    if (remainder != nullptr) LoadPack(remainder + at, words, n, &remainders);
#pragma unroll
    for (unsigned i = 0; i < kVector; ++i) {
      out.element[i] =
          std::bit_cast<float>(JoinMasterBits({weights.element[i], remainders.element[i]}));
    }
    StorePack(out, words, n, master + at);
  }

  const BFloat16* weight;
  const int16_t* remainder;
  float* master;
};
GEMINID_KERNEL(geminid_join_master, ForEachPack<JoinMasterOp>);

}  // namespace cuda

namespace {

bool OnWords(const float* master, const BFloat16* weight, const int16_t* remainder) {
  return cuda::LiesOnWord(master) && cuda::LiesOnWord(weight) && cuda::LiesOnWord(remainder);
}

}  // namespace

Status SplitMasterCuda(const float* master, size_t count, BFloat16* weight, int16_t* remainder,
                       CudaStream stream) {
  const Status status = CheckBuffers(
      {Buffer::Of(master, count)},
      {Buffer::Of(weight, count), Buffer::Of(remainder, remainder == nullptr ? 0 : count)});
  if (status != Status::kOk) return status;
  return cuda::LaunchForEachPack(cuda::SplitMasterOp{master, weight, remainder}, count,
                                 OnWords(master, weight, remainder), stream);
}

Status JoinMasterCuda(const BFloat16* weight, const int16_t* remainder, size_t count, float* master,
                      CudaStream stream) {
  const Status status = CheckBuffers(
      {Buffer::Of(weight, count), Buffer::Of(remainder, remainder == nullptr ? 0 : count)},
      {Buffer::Of(master, count)});
  if (status != Status::kOk) return status;
  return cuda::LaunchForEachPack(cuda::JoinMasterOp{weight, remainder, master}, count,
                                 OnWords(master, weight, remainder), stream);
}

}  // namespace geminid::kernels
