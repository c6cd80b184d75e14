// How a rule (kernels/optimizers/step/rule.h) runs on a GPU.
//
// Device code; included by the *_cuda.cu files alone.
#ifndef GEMINID_KERNELS_OPTIMIZERS_STEP_UPDATE_CUH_
#define GEMINID_KERNELS_OPTIMIZERS_STEP_UPDATE_CUH_

#include <bit>
#include <cstdint>
#include <type_traits>

#include "kernels/numeric/split_master/split_master.h"
#include "kernels/numeric/stochastic_rounding/stochastic_rounding_rule.h"
#include "kernels/optimizers/step/cuda_tensor.h"
#include "kernels/optimizers/step/rule.h"
#include "kernels/runtime/cuda/pack.cuh"

namespace geminid::kernels::cuda {

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

// A tensor, with its rule.
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
struct UpdateTensor {
  static constexpr unsigned kThreads = cuda::kThreads;

  __device__ void Run() const {
    for (unsigned v = 0; v < kVectorsPerThread; ++v) {
      const size_t at = static_cast<size_t>(blockIdx.x) * kBlockElements +
                        static_cast<size_t>(v * kThreads + threadIdx.x) * kVector;
      if (at >= tensor.count) return;
      const size_t left = tensor.count - at;
      UpdatePack(tensor, at, left < kVector ? static_cast<unsigned>(left) : kVector);
    }
  }

  Tensor<Rule, Weight, Gradient> tensor;
};

// Names the kernels of a rule in all forms: geminid_NAME_WEIGHTS_GRADIENTS.
#define GEMINID_UPDATE_KERNELS_OF(name, Rule, Weight)             \
  GEMINID_KERNEL(name##_fp32, UpdateTensor<Rule, Weight, float>); \
  GEMINID_KERNEL(name##_bf16, UpdateTensor<Rule, Weight, BFloat16>)
#define GEMINID_UPDATE_KERNELS(name, ...)                                      \
  using name##_rule = __VA_ARGS__;                                             \
  GEMINID_UPDATE_KERNELS_OF(geminid_##name##_fp32, name##_rule, MasterWeight); \
  GEMINID_UPDATE_KERNELS_OF(geminid_##name##_split, name##_rule, SplitWeight)

template <class Weight, class Rule>
Status UpdateWithWeight(const Rule& rule, const CudaTensor& tensor, CudaStream stream) {
  const size_t blocks = BlocksFor(tensor.count, kBlockElements);
  if (tensor.gradient.type == GradientType::kFloat) {
    return LaunchKernel(UpdateTensor<Rule, Weight, float>{{rule, tensor}}, blocks, stream);
  }
  return LaunchKernel(UpdateTensor<Rule, Weight, BFloat16>{{rule, tensor}}, blocks, stream);
}

inline Status CheckTensor(const CudaTensor& t, int state_arrays) {
  return CheckStepArrays(t.old_arrays, t.gradient, t.count, state_arrays, t.new_arrays);
}

// Calls rule(index, element) for every element of the tensor, which has passed CheckTensor.
// kUnsupported if CUDA refuses the launch.
template <class Rule>
Status Update(const Rule& rule, const CudaTensor& tensor, CudaStream stream) {
  return tensor.new_arrays.form == WeightForm::kSplit
             ? UpdateWithWeight<SplitWeight>(rule, tensor, stream)
             : UpdateWithWeight<MasterWeight>(rule, tensor, stream);
}

template <class Rule>
Status CheckAndUpdate(const Rule& rule, const CudaTensor& tensor, CudaStream stream) {
  const Status status = CheckTensor(tensor, Rule::kStates);
  return status == Status::kOk ? Update(PlainRule<Rule>{rule}, tensor, stream) : status;
}

// A step of an optimizer whose rule depends on its options alone.
template <class Rule, class Options>
Status Step(const Options& options, const CudaTensor& tensor, CudaStream stream) {
  Rule rule;
  const Status status = MakeRule(options, &rule);
  return status == Status::kOk ? CheckAndUpdate(rule, tensor, stream) : status;
}

}  // namespace geminid::kernels::cuda

#endif  // GEMINID_KERNELS_OPTIMIZERS_STEP_UPDATE_CUH_
