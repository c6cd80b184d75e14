// One launch over many tensors: how every elementwise optimizer runs on a GPU.
//
// A thread updates eight consecutive parameters at a time: the eight bf16 values of one 16-byte
// access are the two fp32 accesses beside it. Device code; included by the *_cuda.cu files alone.
#ifndef GEMINID_KERNELS_CUDA_MULTI_TENSOR_CUH_
#define GEMINID_KERNELS_CUDA_MULTI_TENSOR_CUH_

#include "kernels/cuda/tensor.h"
#include "kernels/split_master/split_master.h"

namespace geminid::kernels::cuda {

inline constexpr unsigned kThreads = 256;
inline constexpr unsigned kVector = 8;
inline constexpr unsigned kVectorsPerThread = 4;  // amortises the search for the block's tensor
inline constexpr unsigned kBlockElements = kThreads * kVector * kVectorsPerThread;
inline constexpr size_t kWordBytes = 16;
// The parameters of a launch hold at most 4 KiB on every device; this leaves room for the rule.
inline constexpr size_t kTableBytes = 3584;

__device__ inline float Widen(float value) { return value; }
__device__ inline float Widen(BFloat16 value) { return value.ToFloat(); }
__device__ inline float Widen(Float16 value) { return value.ToFloat(); }

// kVector elements in registers. `words`: the array lies on 16 bytes; `count`: what is left of it.
template <typename T>
struct alignas(kWordBytes) Pack {
  T element[kVector];
};

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

__device__ inline void LoadMaster(const SplitWeight& from, size_t at, bool words, unsigned count,
                                  Pack<float>* master) {
  Pack<BFloat16> weight = {};
  Pack<int16_t> remainder = {};
  LoadPack(from.old_weight + at, words, count, &weight);
  LoadPack(from.old_remainder + at, words, count, &remainder);
#pragma unroll
  for (unsigned i = 0; i < kVector; ++i) {
    master->element[i] = __uint_as_float(JoinMasterBits({weight.element[i], remainder.element[i]}));
  }
}
template <typename Working>
__device__ void LoadMaster(const MasterWeight<Working>& from, size_t at, bool words,
                           unsigned count, Pack<float>* master) {
  LoadPack(from.old_weight + at, words, count, master);
}

__device__ inline void StoreMaster(const Pack<float>& master, size_t at, bool words,
                                   unsigned count, const SplitWeight& to) {
  Pack<BFloat16> weight;
  Pack<int16_t> remainder;
#pragma unroll
  for (unsigned i = 0; i < kVector; ++i) {
    const SplitFloat split = SplitMasterBits(__float_as_uint(master.element[i]));
    weight.element[i] = split.weight;
    remainder.element[i] = split.remainder;
  }
  StorePack(weight, words, count, to.new_weight + at);
  StorePack(remainder, words, count, to.new_remainder + at);
}
template <typename Working>
__device__ void StoreMaster(const Pack<float>& master, size_t at, bool words, unsigned count,
                            const MasterWeight<Working>& to) {
  StorePack(master, words, count, to.new_weight + at);
  if constexpr (!std::is_void_v<Working>) {
    Pack<Working> rounded;
#pragma unroll
    for (unsigned i = 0; i < kVector; ++i) {
      rounded.element[i] = Working::FromFloat(master.element[i]);
    }
    StorePack(rounded, words, count, to.working + at);
  }
}

// The tensors of one launch, in its parameters.
template <class T>
struct Table {
  static constexpr unsigned kCapacity = kTableBytes / (sizeof(T) + sizeof(unsigned) + sizeof(bool));
  T tensor[kCapacity];
  unsigned end_block[kCapacity];  // blocks of this tensor and of those before it
  bool words[kCapacity];          // every array lies on 16 bytes
};

template <class Weight, typename Gradient, int kStates>
bool LiesOnWords(const Tensor<Weight, Gradient, kStates>& tensor) {
  bool words = true;
  const auto one = [&](const void* array) {
    words = words && reinterpret_cast<uintptr_t>(array) % kWordBytes == 0;
  };
  const auto pair = [&](const void* old_array, const void* new_array) {
    one(old_array);
    one(new_array);
  };
  one(tensor.gradient);
  ForEachArray(tensor.weight, pair, one);
  for (int s = 0; s < kStates; ++s) pair(tensor.old_state[s], tensor.new_state[s]);
  return words;
}

// Eight parameters, or the `count` that are left, from `at` on.
template <class Rule, class Weight, typename Gradient, int kStates>
__device__ void UpdatePack(const Tensor<Weight, Gradient, kStates>& tensor, const Rule& rule,
                           size_t at, bool words, unsigned count) {
  Pack<Gradient> gradient = {};
  Pack<float> weight = {};
  Pack<float> state[kStates == 0 ? 1 : kStates] = {};
  LoadPack(tensor.gradient + at, words, count, &gradient);
  LoadMaster(tensor.weight, at, words, count, &weight);
#pragma unroll
  for (int s = 0; s < kStates; ++s) LoadPack(tensor.old_state[s] + at, words, count, &state[s]);
#pragma unroll
  for (unsigned i = 0; i < kVector; ++i) {
    float values[kStates == 0 ? 1 : kStates];
#pragma unroll
    for (int s = 0; s < kStates; ++s) values[s] = state[s].element[i];
    rule(Widen(gradient.element[i]), tensor.factor, &weight.element[i], values);
#pragma unroll
    for (int s = 0; s < kStates; ++s) state[s].element[i] = values[s];
  }
  StoreMaster(weight, at, words, count, tensor.weight);
#pragma unroll
  for (int s = 0; s < kStates; ++s) StorePack(state[s], words, count, tensor.new_state[s] + at);
}

template <class Rule, class Weight, typename Gradient, int kStates>
__global__ void __launch_bounds__(kThreads)
    UpdateTensors(const __grid_constant__ Table<Tensor<Weight, Gradient, kStates>> table,
                  const __grid_constant__ Rule rule) {
  unsigned t = 0;
  while (blockIdx.x >= table.end_block[t]) ++t;
  const auto& tensor = table.tensor[t];
  const unsigned block = blockIdx.x - (t == 0 ? 0 : table.end_block[t - 1]);
  for (unsigned v = 0; v < kVectorsPerThread; ++v) {
    const size_t at = static_cast<size_t>(block) * kBlockElements +
                      static_cast<size_t>(v * kThreads + threadIdx.x) * kVector;
    if (at >= tensor.count) return;
    const size_t left = tensor.count - at;
    UpdatePack(tensor, rule, at, table.words[t],
               left < kVector ? static_cast<unsigned>(left) : kVector);
  }
}

// Checks the tensors, then calls rule(gradient, factor, &weight, states) for every parameter, in as
// few launches as their number allows. kUnsupported if CUDA refuses one.
template <class Rule, class Weight, typename Gradient, int kStates>
Status Update(const Rule& rule, const Tensor<Weight, Gradient, kStates>* tensors, size_t count,
              CudaStream stream) {
  using OneTable = Table<Tensor<Weight, Gradient, kStates>>;
  if (tensors == nullptr && count != 0) return Status::kNullPointer;
  for (size_t i = 0; i < count; ++i) {
    if (const Status status = CheckTensor(tensors[i]); status != Status::kOk) return status;
  }
  for (size_t next = 0; next < count;) {
    OneTable table;
    unsigned blocks = 0;
    unsigned used = 0;
    for (; next < count && used < OneTable::kCapacity; ++next) {
      if (tensors[next].count == 0) continue;
      blocks += static_cast<unsigned>((tensors[next].count + kBlockElements - 1) / kBlockElements);
      table.tensor[used] = tensors[next];
      table.words[used] = LiesOnWords(tensors[next]);
      table.end_block[used++] = blocks;
    }
    if (blocks == 0) continue;
    UpdateTensors<<<blocks, kThreads, 0, stream>>>(table, rule);
    if (cudaGetLastError() != cudaSuccess) return Status::kUnsupported;
  }
  return Status::kOk;
}

}  // namespace geminid::kernels::cuda

#endif  // GEMINID_KERNELS_CUDA_MULTI_TENSOR_CUH_
