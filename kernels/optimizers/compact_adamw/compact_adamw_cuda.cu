#include <bit>
#include <cstdint>

#include "kernels/numeric/quantise/stochastic_rounding_rule.h"
#include "kernels/numeric/split_master/split_master.h"
#include "kernels/optimizers/adamw/adamw_rule.h"
#include "kernels/optimizers/compact_adamw/checks.h"
#include "kernels/optimizers/compact_adamw/compact_adamw_cuda.h"
#include "kernels/runtime/cuda/pack.cuh"

namespace geminid::kernels {
namespace cuda {

inline constexpr unsigned kWarp = 32;
inline constexpr unsigned kPacks = kQuantiseBlock / (kWarp * kVector);  // of a thread
static_assert(kPacks * kWarp * kVector == kQuantiseBlock);

// Where a pack of a thread lies.
struct PackPlace {
  size_t at;       // its first element
  unsigned count;  // elements of it that exist
  bool words;
};

__device__ inline void LoadWeights(const SplitWeights& from, const PackPlace& p,
                                   Pack<float>* weight) {
  Pack<BFloat16> high = {};
  Pack<int16_t> low = {};
  LoadPack(from.weight + p.at, p.words, p.count, &high);
  LoadPack(from.remainder + p.at, p.words, p.count, &low);
#pragma unroll
  for (unsigned i = 0; i < kVector; ++i) {
    weight->element[i] = std::bit_cast<float>(JoinMasterBits({high.element[i], low.element[i]}));
  }
}
__device__ inline void LoadWeights(const MasterWeights& from, const PackPlace& p,
                                   Pack<float>* weight) {
  LoadPack(from.weight + p.at, p.words, p.count, weight);
}

__device__ inline void StoreWeights(const Pack<float>& weight, const PackPlace& p,
                                    const SplitWeights& to) {
  Pack<BFloat16> high;
  Pack<int16_t> low;
#pragma unroll
  for (unsigned i = 0; i < kVector; ++i) {
    const SplitFloat split = SplitMasterBits(std::bit_cast<uint32_t>(weight.element[i]));
    high.element[i] = split.weight;
    low.element[i] = split.remainder;
  }
  StorePack(high, p.words, p.count, to.weight + p.at);
  StorePack(low, p.words, p.count, to.remainder + p.at);
}
__device__ inline void StoreWeights(const Pack<float>& weight, const PackPlace& p,
                                    const MasterWeights& to) {
  StorePack(weight, p.words, p.count, to.weight + p.at);
}

// The largest of the warp, in each of its threads.
__device__ inline uint32_t LargestOfWarp(uint32_t bits) {
#pragma unroll
  for (unsigned half = kWarp / 2; half != 0; half /= 2) {
    const uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, bits, half, kWarp);
    bits = bits < other ? other : bits;
  }
  return bits;
}

// What a warp holds of one block of moments: m, and the root of v or v itself.
struct WarpMoments {
  Pack<float> first[kPacks];
  Pack<float> second[kPacks];
};

__device__ inline void LoadMoments(const EightBitMoments& from, size_t block,
                                   const PackPlace (&places)[kPacks], WarpMoments* to) {
  const float first_scale = from.exp_avg_scale[block];
  const float second_scale = from.exp_avg_sq_root_scale[block];
#pragma unroll
  for (unsigned p = 0; p < kPacks; ++p) {
    Pack<uint8_t> first = {};
    Pack<uint8_t> second = {};
    LoadPack(from.exp_avg + places[p].at, places[p].words, places[p].count, &first);
    LoadPack(from.exp_avg_sq_root + places[p].at, places[p].words, places[p].count, &second);
#pragma unroll
    for (unsigned i = 0; i < kVector; ++i) {
      const float root = DecodeUnsigned(second.element[i], second_scale);
      to->first[p].element[i] = DecodeSigned(first.element[i], first_scale);
      to->second[p].element[i] = root * root;
    }
  }
}

// The scales of both kinds of moments from the largest magnitudes of what exists of the block.
__device__ inline void StoreMoments(WarpMoments& from, size_t block,
                                    const PackPlace (&places)[kPacks], uint64_t /* first_element */,
                                    uint64_t /* step */, const EightBitMoments& to) {
  uint32_t first_largest = 0;
  uint32_t second_largest = 0;
#pragma unroll
  for (unsigned p = 0; p < kPacks; ++p) {
#pragma unroll
    for (unsigned i = 0; i < kVector; ++i) {
      from.second[p].element[i] = sqrtf(from.second[p].element[i]);
      if (i >= places[p].count) continue;
      const uint32_t first = std::bit_cast<uint32_t>(from.first[p].element[i]) & 0x7FFFFFFFu;
      const uint32_t second = std::bit_cast<uint32_t>(from.second[p].element[i]) & 0x7FFFFFFFu;
      first_largest = first_largest < first ? first : first_largest;
      second_largest = second_largest < second ? second : second_largest;
    }
  }
  const QuantiseScale first_scale = ScaleOfLargest(LargestOfWarp(first_largest));
  const QuantiseScale second_scale = ScaleOfLargest(LargestOfWarp(second_largest));
  const bool first_finite = first_scale.scale == first_scale.scale;
  const bool second_finite = second_scale.scale == second_scale.scale;
#pragma unroll
  for (unsigned p = 0; p < kPacks; ++p) {
    Pack<uint8_t> first;
    Pack<uint8_t> second;
#pragma unroll
    for (unsigned i = 0; i < kVector; ++i) {
      first.element[i] =
          first_finite ? EncodeSigned(from.first[p].element[i], first_scale.inverse) : uint8_t{0};
      second.element[i] = second_finite
                              ? EncodeUnsigned(from.second[p].element[i], second_scale.inverse)
                              : uint8_t{0};
    }
    StorePack(first, places[p].words, places[p].count, to.exp_avg + places[p].at);
    StorePack(second, places[p].words, places[p].count, to.exp_avg_sq_root + places[p].at);
  }
  if (threadIdx.x % kWarp != 0) return;
  to.exp_avg_scale[block] = first_scale.scale;
  to.exp_avg_sq_root_scale[block] = second_scale.scale;
}

__device__ inline void LoadMoments(const BFloat16Moments& from, size_t /* block */,
                                   const PackPlace (&places)[kPacks], WarpMoments* to) {
#pragma unroll
  for (unsigned p = 0; p < kPacks; ++p) {
    Pack<BFloat16> first = {};
    Pack<BFloat16> second = {};
    LoadPack(from.exp_avg + places[p].at, places[p].words, places[p].count, &first);
    LoadPack(from.exp_avg_sq + places[p].at, places[p].words, places[p].count, &second);
#pragma unroll
    for (unsigned i = 0; i < kVector; ++i) {
      to->first[p].element[i] = Widen(first.element[i]);
      to->second[p].element[i] = Widen(second.element[i]);
    }
  }
}

__device__ inline void StoreMoments(WarpMoments& from, size_t /* block */,
                                    const PackPlace (&places)[kPacks], uint64_t first_element,
                                    uint64_t step, const BFloat16Moments& to) {
#pragma unroll
  for (unsigned p = 0; p < kPacks; ++p) {
    Pack<BFloat16> first;
    Pack<BFloat16> second;
#pragma unroll
    for (unsigned i = 0; i < kVector; ++i) {
      const uint64_t index = first_element + places[p].at + i;
      const uint32_t random =
          RoundingBits(RoundingKey(step, index >> 32), static_cast<uint32_t>(index));
      first.element[i] = RoundStochastically(from.first[p].element[i], random & 0xFFFFu);
      second.element[i] = RoundStochastically(from.second[p].element[i], random >> 16);
    }
    StorePack(first, places[p].words, places[p].count, to.exp_avg + places[p].at);
    StorePack(second, places[p].words, places[p].count, to.exp_avg_sq + places[p].at);
  }
}

template <class Weights, class Moments, typename Gradient>
struct UpdateCompact {
  static constexpr unsigned kThreads = cuda::kThreads;
  static constexpr unsigned kMinBlocks = 1;  // the compiler's own choice spills on sm_80
  static constexpr unsigned kBlocksPerGroup = kThreads / kWarp;

  __device__ void Run() const {
    const size_t block = static_cast<size_t>(blockIdx.x) * kBlocksPerGroup + threadIdx.x / kWarp;
    PackPlace places[kPacks];
    Pack<float> weight[kPacks] = {};
    WarpMoments moments = {};
#pragma unroll
    for (unsigned p = 0; p < kPacks; ++p) {
      const size_t at = block * kQuantiseBlock + (p * kWarp + threadIdx.x % kWarp) * kVector;
      const size_t left = at < count ? count - at : 0;
      places[p] = {at, left < kVector ? static_cast<unsigned>(left) : kVector, words};
    }
    // Beyond the end a warp computes zeros that it does not store, to meet the shuffles.
    const size_t known = block * kQuantiseBlock < count ? block : 0;
    LoadMoments(old_state.moments, known, places, &moments);
#pragma unroll
    for (unsigned p = 0; p < kPacks; ++p) {
      Pack<Gradient> above = {};
      LoadPack(gradient + places[p].at, words, places[p].count, &above);
      LoadWeights(old_state.weights, places[p], &weight[p]);
#pragma unroll
      for (unsigned i = 0; i < kVector; ++i) {
        Element<float> e = {};
        e.gradient = Widen(above.element[i]);
        e.weight = weight[p].element[i];
        e.state[0] = moments.first[p].element[i];
        e.state[1] = moments.second[p].element[i];
        rule(e);
        weight[p].element[i] = e.weight;
        moments.first[p].element[i] = e.state[0];
        moments.second[p].element[i] = e.state[1];
      }
      StoreWeights(weight[p], places[p], new_state.weights);
    }
    if (block != known) return;  // a whole warp
    StoreMoments(moments, block, places, first_element, step, new_state.moments);
  }

  AdamWRule rule;
  uint64_t step;
  uint64_t first_element;
  CompactState<Weights, Moments> old_state;
  const Gradient* gradient;
  CompactState<Weights, Moments> new_state;
  uint64_t count;
  bool words;  // every array lies on 16 bytes
};
GEMINID_KERNEL(geminid_adamw_8bit_split_bf16,
               UpdateCompact<SplitWeights, EightBitMoments, BFloat16>);
GEMINID_KERNEL(geminid_adamw_8bit_split_fp32, UpdateCompact<SplitWeights, EightBitMoments, float>);
GEMINID_KERNEL(geminid_adamw_8bit_fp32_fp32, UpdateCompact<MasterWeights, EightBitMoments, float>);
GEMINID_KERNEL(geminid_adamw_bf16_split_bf16,
               UpdateCompact<SplitWeights, BFloat16Moments, BFloat16>);
GEMINID_KERNEL(geminid_adamw_bf16_split_fp32, UpdateCompact<SplitWeights, BFloat16Moments, float>);
GEMINID_KERNEL(geminid_adamw_bf16_fp32_fp32, UpdateCompact<MasterWeights, BFloat16Moments, float>);

}  // namespace cuda

template <class Weights, class Moments, typename Gradient>
Status AdamWCompactCuda(const AdamWOptions& options, uint64_t first_element,
                        const CompactState<Weights, Moments>& old_state, const Gradient* gradient,
                        size_t count, const CompactState<Weights, Moments>& new_state,
                        CudaStream stream) {
  using Kernel = cuda::UpdateCompact<Weights, Moments, Gradient>;
  AdamWCoefficients k;
  bool in_place = false;
  Status status = DeriveAdamWCoefficients(options, &k);
  if (status == Status::kOk) {
    status = CheckCompactStep(first_element, old_state, gradient, count, new_state, &in_place);
  }
  if (status != Status::kOk) return status;
  bool words = cuda::LiesOnWord(gradient);
  const auto look = [&](const auto* a, const auto* b) {
    words = words && cuda::LiesOnWord(a) && cuda::LiesOnWord(b);
  };
  ForEachArray(old_state, new_state, look, [](const float*, const float*) {});
  const Kernel kernel = {{k},      options.step, first_element, old_state,
                         gradient, new_state,    count,         words};
  return cuda::LaunchKernel(
      kernel, cuda::BlocksFor(QuantiseScaleCount(count), Kernel::kBlocksPerGroup), stream);
}

#define GEMINID_INSTANTIATE(Weights, Moments, Gradient)                                            \
  template Status AdamWCompactCuda(const AdamWOptions&, uint64_t,                                  \
                                   const CompactState<Weights, Moments>&, const Gradient*, size_t, \
                                   const CompactState<Weights, Moments>&, CudaStream)
GEMINID_INSTANTIATE(SplitWeights, EightBitMoments, BFloat16);
GEMINID_INSTANTIATE(SplitWeights, EightBitMoments, float);
GEMINID_INSTANTIATE(MasterWeights, EightBitMoments, float);
GEMINID_INSTANTIATE(SplitWeights, BFloat16Moments, BFloat16);
GEMINID_INSTANTIATE(SplitWeights, BFloat16Moments, float);
GEMINID_INSTANTIATE(MasterWeights, BFloat16Moments, float);
#undef GEMINID_INSTANTIATE

}  // namespace geminid::kernels
