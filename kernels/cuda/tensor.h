#ifndef GEMINID_KERNELS_CUDA_TENSOR_H_
#define GEMINID_KERNELS_CUDA_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "kernels/common/bfloat16.h"
#include "kernels/common/buffers.h"
#include "kernels/common/float16.h"
#include "kernels/common/status.h"
#include "kernels/cuda/stream.h"

// What an optimizer updates in one launch on a GPU: tensors, or parts of chunks, in device memory.
//
// Every array is updated in place (the new array is the old one) or is disjoint from all others.
// Element alignment suffices; where all arrays of a tensor lie on 16 bytes they are accessed in
// words of 16 bytes.
namespace geminid::kernels::cuda {

// The fp32 master of a weight in two halves (kernels/split_master)...
struct SplitWeight {
  const BFloat16* old_weight;
  const int16_t* old_remainder;
  BFloat16* new_weight;
  int16_t* new_remainder;
};

// ... or whole. `working` receives the master rounded to nearest even, for training to use; with
// Working = void there is none.
template <typename Working>
struct MasterWeight {
  const float* old_weight;
  float* new_weight;
  Working* working;
};

template <class Weight, typename Gradient, int kStates>
struct Tensor {
  Weight weight;
  const Gradient* gradient;
  const float* old_state[kStates == 0 ? 1 : kStates];
  float* new_state[kStates == 0 ? 1 : kStates];
  uint64_t count;
  float factor = 1.0F;  // for rules with a number per tensor, such as a trust ratio
};

// pair(old, new) for arrays that are read and written, written(array) for those only written.
template <class Pair, class Written>
void ForEachArray(const SplitWeight& weight, Pair pair, Written /* written */) {
  pair(weight.old_weight, weight.new_weight);
  pair(weight.old_remainder, weight.new_remainder);
}
template <typename Working, class Pair, class Written>
void ForEachArray(const MasterWeight<Working>& weight, Pair pair, Written written) {
  pair(weight.old_weight, weight.new_weight);
  if constexpr (!std::is_void_v<Working>) written(weight.working);
}

// The rules above: null, alignment, overlap.
template <class Weight, typename Gradient, int kStates>
Status CheckTensor(const Tensor<Weight, Gradient, kStates>& tensor) {
  Buffer inputs[3 + kStates];
  Buffer outputs[2 + kStates];
  size_t input_count = 0;
  size_t output_count = 0;
  const auto written = [&](const auto* array) {
    outputs[output_count++] = Buffer::Of(array, tensor.count);
  };
  const auto pair = [&](const auto* old_array, const auto* new_array) {
    if (old_array != new_array) inputs[input_count++] = Buffer::Of(old_array, tensor.count);
    written(new_array);
  };
  inputs[input_count++] = Buffer::Of(tensor.gradient, tensor.count);
  ForEachArray(tensor.weight, pair, written);
  for (int s = 0; s < kStates; ++s) pair(tensor.old_state[s], tensor.new_state[s]);
  return CheckBuffers(std::span<const Buffer>(inputs, input_count),
                      std::span<const Buffer>(outputs, output_count));
}

}  // namespace geminid::kernels::cuda

#endif  // GEMINID_KERNELS_CUDA_TENSOR_H_
