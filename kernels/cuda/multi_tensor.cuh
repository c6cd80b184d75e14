// One launch over many tensors: how every elementwise optimizer runs on a GPU.
//
// A thread updates eight consecutive parameters at a time, with 16-byte accesses where all arrays of
// the tensor allow them: the eight bf16 values of one access are the two fp32 accesses beside it.
// Device code; included by the *_cuda.cu files alone.
#ifndef GEMINID_KERNELS_CUDA_MULTI_TENSOR_CUH_
#define GEMINID_KERNELS_CUDA_MULTI_TENSOR_CUH_

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "kernels/common/bfloat16.h"
#include "kernels/common/float16.h"
#include "kernels/common/status.h"
#include "kernels/cuda/stream.h"
#include "kernels/split_master/split_master.h"

namespace geminid::kernels::cuda {

inline constexpr unsigned kThreads = 256;
inline constexpr unsigned kVector = 8;
inline constexpr unsigned kVectorsPerThread = 4;  // amortises the search for the block's tensor
inline constexpr unsigned kBlockElements = kThreads * kVector * kVectorsPerThread;
inline constexpr size_t kWordBytes = 16;
// The parameters of a launch hold at most 4 KiB on every device; this leaves room for the rule.
inline constexpr size_t kTableBytes = 3584;

// kVector elements in registers.
template <typename T>
struct alignas(kWordBytes) Pack {
  T element[kVector];
};

__device__ inline float Widen(float value) { return value; }
__device__ inline float Widen(BFloat16 value) { return value.ToFloat(); }
__device__ inline float Widen(Float16 value) { return value.ToFloat(); }

template <typename T>
__device__ void LoadPack(const T* from, bool words, unsigned count, Pack<T>* pack) {
  if (words && count == kVector) {
    *pack = *reinterpret_cast<const Pack<T>*>(from);
    return;
  }
#pragma unroll
  for (unsigned i = 0; i < kVector; ++i) {
    if (i < count) pack->element[i] = from[i];
  }
}

template <typename T>
__device__ void StorePack(const Pack<T>& pack, bool words, unsigned count, T* to) {
  if (words && count == kVector) {
    *reinterpret_cast<Pack<T>*>(to) = pack;
    return;
  }
#pragma unroll
  for (unsigned i = 0; i < kVector; ++i) {
    if (i < count) to[i] = pack.element[i];
  }
}

// How the fp32 master of kVector parameters is kept: in two halves...
struct SplitWeight {
  const BFloat16* old_weight;
  const int16_t* old_remainder;
  BFloat16* new_weight;
  int16_t* new_remainder;

  __device__ void Load(size_t at, bool words, unsigned count, Pack<float>* master) const {
    Pack<BFloat16> weight;
    Pack<int16_t> remainder;
    LoadPack(old_weight + at, words, count, &weight);
    LoadPack(old_remainder + at, words, count, &remainder);
#pragma unroll
    for (unsigned i = 0; i < kVector; ++i) {
      master->element[i] =
          __uint_as_float(JoinMasterBits({weight.element[i], remainder.element[i]}));
    }
  }
  __device__ void Store(size_t at, bool words, unsigned count, const Pack<float>& master) const {
    Pack<BFloat16> weight;
    Pack<int16_t> remainder;
#pragma unroll
    for (unsigned i = 0; i < kVector; ++i) {
      const SplitFloat split = SplitMasterBits(__float_as_uint(master.element[i]));
      weight.element[i] = split.weight;
      remainder.element[i] = split.remainder;
    }
    StorePack(weight, words, count, new_weight + at);
    StorePack(remainder, words, count, new_remainder + at);
  }
  bool InWords() const { return AreWords({old_weight, old_remainder, new_weight, new_remainder}); }

  static bool AreWords(std::initializer_list<const void*> arrays) {
    for (const void* array : arrays) {
      if (reinterpret_cast<uintptr_t>(array) % kWordBytes != 0) return false;
    }
    return true;
  }
};

// ... or whole, with a 16-bit copy beside it, or none (Working is then void).
template <typename Working>
struct MasterWeight {
  const float* old_weight;
  float* new_weight;
  Working* working;

  __device__ void Load(size_t at, bool words, unsigned count, Pack<float>* master) const {
    LoadPack(old_weight + at, words, count, master);
  }
  __device__ void Store(size_t at, bool words, unsigned count, const Pack<float>& master) const {
    StorePack(master, words, count, new_weight + at);
    if constexpr (!std::is_void_v<Working>) {
      Pack<Working> rounded;
#pragma unroll
      for (unsigned i = 0; i < kVector; ++i) {
        rounded.element[i] = Working::FromFloat(master.element[i]);
      }
      StorePack(rounded, words, count, working + at);
    }
  }
  bool InWords() const { return SplitWeight::AreWords({old_weight, new_weight, working}); }
};

// One tensor of a launch. `factor` is what the rule takes per tensor (a trust ratio); 1 otherwise.
template <class Weight, typename Gradient, int kStates>
struct Tensor {
  Weight weight;
  const Gradient* gradient;
  const float* old_state[kStates == 0 ? 1 : kStates];
  float* new_state[kStates == 0 ? 1 : kStates];
  uint64_t count;
  float factor;

  bool InWords() const {
    bool words = weight.InWords() && SplitWeight::AreWords({gradient});
    for (int s = 0; s < kStates; ++s) {
      words = words && SplitWeight::AreWords({old_state[s], new_state[s]});
    }
    return words;
  }
};

template <class T>
struct Table {
  static constexpr unsigned kCapacity = kTableBytes / (sizeof(T) + sizeof(unsigned) + 1);
  T tensor[kCapacity];
  unsigned end_block[kCapacity];  // blocks of this tensor and those before it
  bool words[kCapacity];
};

// `Rule` is called as rule(gradient, factor, &weight, states) with one parameter's values.
template <class Rule, class Weight, typename Gradient, int kStates>
__global__ void __launch_bounds__(kThreads)
    UpdateTensors(const __grid_constant__ Table<Tensor<Weight, Gradient, kStates>> table,
                  const __grid_constant__ Rule rule) {
  unsigned t = 0;
  while (blockIdx.x >= table.end_block[t]) ++t;
  const auto& tensor = table.tensor[t];
  const bool words = table.words[t];
  const unsigned block = blockIdx.x - (t == 0 ? 0 : table.end_block[t - 1]);
  for (unsigned v = 0; v < kVectorsPerThread; ++v) {
    const size_t at = static_cast<size_t>(block) * kBlockElements +
                      (v * kThreads + threadIdx.x) * kVector;
    if (at >= tensor.count) return;
    const unsigned count = tensor.count - at < kVector ? tensor.count - at : kVector;
    Pack<Gradient> gradient = {};
    Pack<float> weight = {};
    Pack<float> state[kStates == 0 ? 1 : kStates] = {};
    LoadPack(tensor.gradient + at, words, count, &gradient);
    tensor.weight.Load(at, words, count, &weight);
#pragma unroll
    for (int s = 0; s < kStates; ++s) {
      LoadPack(tensor.old_state[s] + at, words, count, &state[s]);
    }
#pragma unroll
    for (unsigned i = 0; i < kVector; ++i) {
      float values[kStates == 0 ? 1 : kStates];
#pragma unroll
      for (int s = 0; s < kStates; ++s) values[s] = state[s].element[i];
      rule(Widen(gradient.element[i]), tensor.factor, &weight.element[i], values);
#pragma unroll
      for (int s = 0; s < kStates; ++s) state[s].element[i] = values[s];
    }
    tensor.weight.Store(at, words, count, weight);
#pragma unroll
    for (int s = 0; s < kStates; ++s) {
      StorePack(state[s], words, count, tensor.new_state[s] + at);
    }
  }
}

// Launches as often as the tensors need. kUnsupported if CUDA refuses.
template <int kStates, class Rule, class Weight, typename Gradient>
Status Update(const Rule& rule, const Tensor<Weight, Gradient, kStates>* tensors, size_t count,
              CudaStream stream) {
  using OneTensor = Tensor<Weight, Gradient, kStates>;
  for (size_t next = 0; next < count;) {
    Table<OneTensor> table;
    unsigned blocks = 0;
    unsigned used = 0;
    for (; next < count && used < Table<OneTensor>::kCapacity; ++next) {
      if (tensors[next].count == 0) continue;
      blocks += static_cast<unsigned>((tensors[next].count + kBlockElements - 1) / kBlockElements);
      table.tensor[used] = tensors[next];
      table.words[used] = tensors[next].InWords();
      table.end_block[used++] = blocks;
    }
    if (blocks == 0) continue;
    UpdateTensors<Rule, Weight, Gradient, kStates>
        <<<blocks, kThreads, 0, stream>>>(table, rule);
    if (cudaGetLastError() != cudaSuccess) return Status::kUnsupported;
  }
  return Status::kOk;
}

}  // namespace geminid::kernels::cuda

#endif  // GEMINID_KERNELS_CUDA_MULTI_TENSOR_CUH_
