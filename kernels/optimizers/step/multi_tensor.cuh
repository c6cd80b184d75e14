// One launch over many tensors: how a rule (kernels/optimizers/step/rule.h) runs on a GPU.
//
// Device code; included by the *_cuda.cu files alone.
#ifndef GEMINID_KERNELS_OPTIMIZERS_STEP_MULTI_TENSOR_CUH_
#define GEMINID_KERNELS_OPTIMIZERS_STEP_MULTI_TENSOR_CUH_

#include <bit>
#include <cstdint>
#include <new>
#include <type_traits>

#include "kernels/numeric/split_master/split_master.h"
#include "kernels/numeric/stochastic_rounding/stochastic_rounding_rule.h"
#include "kernels/optimizers/step/cuda_tensor.h"
#include "kernels/optimizers/step/rule.h"
#include "kernels/runtime/cuda/pack.cuh"

namespace geminid::kernels::cuda {

// The parameters of a launch hold at most 4 KiB on every device; this leaves room for the rule.
inline constexpr size_t kTableBytes = 3584;

// The weights of one tensor: the fp32 master in two halves...
struct SplitWeight {
  const BFloat16* old_weight;
  const int16_t* old_remainder;
  BFloat16* new_weight;
  int16_t* new_remainder;

  explicit SplitWeight(const CudaTensor& t)
      : old_weight(t.old_arrays.bfloat16),
        old_remainder(t.old_arrays.remainder),
        new_weight(t.new_arrays.bfloat16),
        new_remainder(t.new_arrays.remainder) {}
};
// ... or whole.
struct MasterWeight {
  const float* old_weight;
  float* new_weight;

  explicit MasterWeight(const CudaTensor& t)
      : old_weight(t.old_arrays.master), new_weight(t.new_arrays.master) {}
};

__device__ inline void LoadMaster(const SplitWeight& from, size_t at, bool words, unsigned count,
                                  Pack<float>* master) {
  Pack<BFloat16> weight = {};
  Pack<int16_t> remainder = {};
  LoadPack(from.old_weight + at, words, count, &weight);
  LoadPack(from.old_remainder + at, words, count, &remainder);
#pragma unroll
  for (unsigned i = 0; i < kVector; ++i) {
    master->element[i] =
        std::bit_cast<float>(JoinMasterBits({weight.element[i], remainder.element[i]}));
  }
}
__device__ inline void LoadMaster(const MasterWeight& from, size_t at, bool words, unsigned count,
                                  Pack<float>* master) {
  LoadPack(from.old_weight + at, words, count, master);
}

__device__ inline void StoreMaster(const Pack<float>& master, size_t at, bool words, unsigned count,
                                   const SplitWeight& to) {
  Pack<BFloat16> weight;
  Pack<int16_t> remainder;
#pragma unroll
  for (unsigned i = 0; i < kVector; ++i) {
    const SplitFloat split = SplitMasterBits(std::bit_cast<uint32_t>(master.element[i]));
    weight.element[i] = split.weight;
    remainder.element[i] = split.remainder;
  }
  StorePack(weight, words, count, to.new_weight + at);
  StorePack(remainder, words, count, to.new_remainder + at);
}
__device__ inline void StoreMaster(const Pack<float>& master, size_t at, bool words, unsigned count,
                                   const MasterWeight& to) {
  StorePack(master, words, count, to.new_weight + at);
}

// A rule that does not depend on the index of an element.
template <class Rule>
struct PlainRule {
  static constexpr int kStates = Rule::kStates;

  __device__ void operator()(size_t /* at */, Element<float>& e) const { rule(e); }

  Rule rule;
};

// One tensor of a launch, with its rule.
template <class Rule, class Weight, typename Gradient>
struct Tensor {
  static constexpr int kStates = Rule::kStates;
  static constexpr int kArrays = kStates == 0 ? 1 : kStates;  // C++ has no array of length 0
  Rule rule;
  Weight weight;
  const Gradient* gradient;
  const void* old_state[kArrays] = {};  // float, or BFloat16 if small_state
  void* new_state[kArrays] = {};
  StateRounding rounding;  // of small state
  uint64_t count;
  bool small_state;
  bool words;  // every array lies on 16 bytes

  Tensor(const Rule& its_rule, const CudaTensor& t)
      : rule(its_rule),
        weight(t),
        gradient(static_cast<const Gradient*>(t.gradient.data)),
        rounding(t.new_arrays.rounding),
        count(t.count),
        small_state(t.old_arrays.state_form == StateForm::kBFloat16),
        words(LiesOnWord(t.gradient.data) && WeightsLieOnWords(t)) {
    for (int s = 0; s < kStates; ++s) {
      old_state[s] = t.old_arrays.state[s];
      new_state[s] = t.new_arrays.state[s];
      if (small_state) old_state[s] = t.old_arrays.small_state[s];
      if (small_state) new_state[s] = t.new_arrays.small_state[s];
      words = words && LiesOnWord(old_state[s]) && LiesOnWord(new_state[s]);
    }
  }

  static bool WeightsLieOnWords(const CudaTensor& t) {
    const auto all = [](const auto& a) {
      return LiesOnWord(a.master) && LiesOnWord(a.bfloat16) && LiesOnWord(a.remainder);
    };
    return all(t.old_arrays) && all(t.new_arrays);
  }
};

// The tensors of one launch, in its parameters.
template <class T>
struct Table {
  static constexpr unsigned kCapacity = kTableBytes / (sizeof(T) + sizeof(unsigned));
  alignas(T) unsigned char tensors[kCapacity * sizeof(T)];
  unsigned end_block[kCapacity];  // blocks of this tensor and of those before it

  __host__ __device__ const T& tensor(unsigned index) const {
    return reinterpret_cast<const T*>(tensors)[index];
  }
};

// The elements of one array of state. The branch is the same for all threads of a block.
template <class OneTensor>
__device__ void LoadState(const OneTensor& tensor, int s, size_t at, unsigned count,
                          Pack<float>* state) {
  if (!tensor.small_state) {
    LoadPack(static_cast<const float*>(tensor.old_state[s]) + at, tensor.words, count, state);
    return;
  }
  Pack<BFloat16> small = {};
  LoadPack(static_cast<const BFloat16*>(tensor.old_state[s]) + at, tensor.words, count, &small);
#pragma unroll
  for (unsigned i = 0; i < kVector; ++i) state->element[i] = Widen(small.element[i]);
}

template <class OneTensor>
__device__ float LoadStateElement(const OneTensor& tensor, int s, size_t at) {
  if (!tensor.small_state) return static_cast<const float*>(tensor.old_state[s])[at];
  return Widen(static_cast<const BFloat16*>(tensor.old_state[s])[at]);
}

template <class OneTensor>
__device__ void StoreState(const OneTensor& tensor, int s, size_t at, unsigned count,
                           const Pack<float>& state) {
  if (!tensor.small_state) {
    StorePack(state, tensor.words, count, static_cast<float*>(tensor.new_state[s]) + at);
    return;
  }
  Pack<BFloat16> small;
  uint64_t high = (tensor.rounding.first_element + at) >> 32;
  uint32_t key = RoundingKey(tensor.rounding.seed, high);
#pragma unroll
  for (unsigned i = 0; i < kVector; ++i) {
    const uint64_t index = tensor.rounding.first_element + at + i;
    if (index >> 32 != high) {  // seldom
      high = index >> 32;
      key = RoundingKey(tensor.rounding.seed, high);
    }
    const uint32_t random = RoundingBits(key, static_cast<uint32_t>(index));
    small.element[i] =
        RoundStochastically(state.element[i], s == 0 ? random & 0xFFFFu : random >> 16);
  }
  StorePack(small, tensor.words, count, static_cast<BFloat16*>(tensor.new_state[s]) + at);
}

// Updates kVector parameters from `at` on, or the `count` that are left.
template <class Rule, class Weight, typename Gradient>
__device__ void UpdatePack(const Tensor<Rule, Weight, Gradient>& tensor, size_t at,
                           unsigned count) {
  constexpr int kStates = Rule::kStates;
  const bool words = tensor.words;
  Pack<Gradient> gradient = {};
  Pack<float> weight = {};
  Pack<float> state[Tensor<Rule, Weight, Gradient>::kArrays] = {};
  LoadPack(tensor.gradient + at, words, count, &gradient);
  LoadMaster(tensor.weight, at, words, count, &weight);
#pragma unroll
  for (int s = 0; s < kStates; ++s) LoadState(tensor, s, at, count, &state[s]);
#pragma unroll
  for (unsigned i = 0; i < kVector; ++i) {
    Element<float> e = {};
    e.gradient = Widen(gradient.element[i]);
    e.weight = weight.element[i];
#pragma unroll
    for (int s = 0; s < kStates; ++s) e.state[s] = state[s].element[i];
    if (i < count) tensor.rule(at + i, e);
    weight.element[i] = e.weight;
#pragma unroll
    for (int s = 0; s < kStates; ++s) state[s].element[i] = e.state[s];
  }
  StoreMaster(weight, at, words, count, tensor.weight);
#pragma unroll
  for (int s = 0; s < kStates; ++s) StoreState(tensor, s, at, count, state[s]);
}

// Rule is called with the element's index too, as PlainRule is.
template <class Rule, class Weight, typename Gradient>
struct UpdateTensors {
  static constexpr unsigned kThreads = cuda::kThreads;

  __device__ void Run() const {
    unsigned t = 0;
    while (blockIdx.x >= table.end_block[t]) ++t;
    const auto& tensor = table.tensor(t);
    const unsigned block = blockIdx.x - (t == 0 ? 0 : table.end_block[t - 1]);
    for (unsigned v = 0; v < kVectorsPerThread; ++v) {
      const size_t at = static_cast<size_t>(block) * kBlockElements +
                        static_cast<size_t>(v * kThreads + threadIdx.x) * kVector;
      if (at >= tensor.count) return;
      const size_t left = tensor.count - at;
      UpdatePack(tensor, at, left < kVector ? static_cast<unsigned>(left) : kVector);
    }
  }

  Table<Tensor<Rule, Weight, Gradient>> table;
};

// Names the kernels of a rule in all forms: geminid_NAME_WEIGHTS_GRADIENTS.
#define GEMINID_UPDATE_KERNELS_OF(name, Rule, Weight)              \
  GEMINID_KERNEL(name##_fp32, UpdateTensors<Rule, Weight, float>); \
  GEMINID_KERNEL(name##_bf16, UpdateTensors<Rule, Weight, BFloat16>)
#define GEMINID_UPDATE_KERNELS(name, ...)                                      \
  using name##_rule = __VA_ARGS__;                                             \
  GEMINID_UPDATE_KERNELS_OF(geminid_##name##_fp32, name##_rule, MasterWeight); \
  GEMINID_UPDATE_KERNELS_OF(geminid_##name##_split, name##_rule, SplitWeight)

template <class Weight, typename Gradient, class RuleOf>
Status Launch(const RuleOf& rule_of, const CudaTensor* tensors, size_t count, CudaStream stream) {
  using OneTensor = Tensor<decltype(rule_of(0)), Weight, Gradient>;
  for (size_t next = 0; next < count;) {
    UpdateTensors<decltype(rule_of(0)), Weight, Gradient> kernel;
    Table<OneTensor>& table = kernel.table;
    unsigned blocks = 0;
    unsigned used = 0;
    for (; next < count && used < Table<OneTensor>::kCapacity; ++next) {
      if (tensors[next].count == 0) continue;
      blocks += static_cast<unsigned>((tensors[next].count + kBlockElements - 1) / kBlockElements);
      new (table.tensors + used * sizeof(OneTensor)) OneTensor(rule_of(next), tensors[next]);
      table.end_block[used++] = blocks;
    }
    const Status status = LaunchKernel(kernel, blocks, stream);
    if (status != Status::kOk) return status;
  }
  return Status::kOk;
}

template <class Weight, class RuleOf>
Status LaunchWithWeight(const RuleOf& rule_of, const CudaTensor* tensors, size_t count,
                        CudaStream stream) {
  switch (tensors[0].gradient.type) {
    case GradientType::kFloat:
      return Launch<Weight, float>(rule_of, tensors, count, stream);
    case GradientType::kBFloat16:
      return Launch<Weight, BFloat16>(rule_of, tensors, count, stream);
  }
  return Status::kInvalidShape;
}

inline Status CheckTensors(const CudaTensor* tensors, size_t count, int state_arrays) {
  if (tensors == nullptr) return count == 0 ? Status::kOk : Status::kNullPointer;
  for (size_t i = 0; i < count; ++i) {
    const CudaTensor& t = tensors[i];
    const Status status =
        CheckStepArrays(t.old_arrays, t.gradient, t.count, state_arrays, t.new_arrays);
    if (status != Status::kOk) return status;
    if (t.new_arrays.form != tensors[0].new_arrays.form ||
        t.gradient.type != tensors[0].gradient.type) {
      return Status::kInvalidShape;
    }
  }
  return Status::kOk;
}

// Calls rule_of(t)(index, element) for every element of tensors[t], which have passed CheckTensors.
// kUnsupported if CUDA refuses a launch.
template <class RuleOf>
Status Update(const RuleOf& rule_of, const CudaTensor* tensors, size_t count, CudaStream stream) {
  if (count == 0) return Status::kOk;
  switch (tensors[0].new_arrays.form) {
    case WeightForm::kFloat:
      return LaunchWithWeight<MasterWeight>(rule_of, tensors, count, stream);
    case WeightForm::kSplit:
      return LaunchWithWeight<SplitWeight>(rule_of, tensors, count, stream);
  }
  return Status::kInvalidShape;
}

// One rule for all tensors.
template <class Rule>
Status CheckAndUpdate(const Rule& rule, const CudaTensor* tensors, size_t count,
                      CudaStream stream) {
  const Status status = CheckTensors(tensors, count, Rule::kStates);
  if (status != Status::kOk) return status;
  return Update([&rule](size_t /* tensor */) { return PlainRule<Rule>{rule}; }, tensors, count,
                stream);
}

// A step of an optimizer whose rule is the same for all tensors.
template <class Rule, class Options>
Status Step(const Options& options, const CudaTensor* tensors, size_t count, CudaStream stream) {
  Rule rule;
  const Status status = MakeRule(options, &rule);
  return status == Status::kOk ? CheckAndUpdate(rule, tensors, count, stream) : status;
}

}  // namespace geminid::kernels::cuda

#endif  // GEMINID_KERNELS_OPTIMIZERS_STEP_MULTI_TENSOR_CUH_
