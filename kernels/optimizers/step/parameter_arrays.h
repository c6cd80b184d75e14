#ifndef GEMINID_KERNELS_OPTIMIZERS_STEP_PARAMETER_ARRAYS_H_
#define GEMINID_KERNELS_OPTIMIZERS_STEP_PARAMETER_ARRAYS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/runtime/common/bfloat16.h"
#include "kernels/runtime/common/status.h"

// The arrays that an optimizer reads and writes, in every form that the library trains in.
namespace geminid::kernels {

// How `count` weights are stored. The master is fp32 in every form.
enum class WeightForm : uint8_t {
  kFloat,  // master
  kSplit,  // bfloat16 and remainder, which make the master: kernels/numeric/split_master
};

// The most full-size arrays of state that an optimizer has.
inline constexpr int kMaxStateArrays = 2;

// How state arrays are stored between steps. A step computes in fp32 in either form.
enum class StateForm : uint8_t {
  kFloat,     // `state`
  kBFloat16,  // `small_state`, rounded up or down at random: StateRounding
};

// The rounding of a kBFloat16 state: up with the probability that makes the mean exact. With
// rounding to nearest, a second moment would not move when a step changes it by less than 2^-9, as
// with beta2 = 0.999. The random bits are a hash of the seed, which is the tensor's and the step's,
// and of the element's index in the tensor (kernels/numeric/stochastic_rounding). So they do not
// depend on calls, threads or ranks.
struct StateRounding {
  uint64_t seed = 0;           // RoundingSeed
  uint64_t first_element = 0;  // the index in the tensor of the arrays' first element
};

// Only the arrays of the forms and the state arrays that the optimizer has are read; the rest may
// be null. Each optimizer's header names its state arrays; all zero is the state before step 1.
struct ConstParameterArrays {
  WeightForm form = WeightForm::kFloat;
  const float* master = nullptr;
  const BFloat16* bfloat16 = nullptr;
  const int16_t* remainder = nullptr;
  const float* state[kMaxStateArrays] = {};
  StateForm state_form = StateForm::kFloat;
  const BFloat16* small_state[kMaxStateArrays] = {};
};
struct ParameterArrays {
  WeightForm form = WeightForm::kFloat;
  float* master = nullptr;
  BFloat16* bfloat16 = nullptr;
  int16_t* remainder = nullptr;
  float* state[kMaxStateArrays] = {};
  StateForm state_form = StateForm::kFloat;
  BFloat16* small_state[kMaxStateArrays] = {};
  StateRounding rounding = {};  // of small_state

  ConstParameterArrays View() const {
    return {form,
            master,
            bfloat16,
            remainder,
            {state[0], state[1]},
            state_form,
            {small_state[0], small_state[1]}};
  }
};

// Both from element `offset` on.
ConstParameterArrays Advance(const ConstParameterArrays& arrays, size_t offset);
ParameterArrays Advance(const ParameterArrays& arrays, size_t offset);

enum class GradientType : uint8_t { kFloat, kBFloat16 };

// Gradients of any type; all are exact in fp32.
struct GradientArray {
  GradientType type = GradientType::kFloat;
  const void* data = nullptr;

  GradientArray() = default;
  GradientArray(const float* values) : data(values) {}  // NOLINT(google-explicit-constructor)
  GradientArray(const BFloat16* values)                 // NOLINT(google-explicit-constructor)
      : type(GradientType::kBFloat16), data(values) {}
};

GradientArray Advance(const GradientArray& gradient, size_t offset);

// The checks of every step on its arrays before it writes. The old and the new forms of weights and
// of state are the same (else kInvalidShape). Pointers, alignment and size are valid. Either every
// array of the new state is that of the old one (in place), or the new ones are disjoint from all
// others (else kOverlap).
Status CheckStepArrays(const ConstParameterArrays& old_arrays, const GradientArray& gradient,
                       size_t count, int state_arrays, const ParameterArrays& new_arrays);
// The same checks for a pass that only reads.
Status CheckReadArrays(const ConstParameterArrays& arrays, const GradientArray& gradient,
                       size_t count, int state_arrays);

// old -> new without a change: for parameters that a step skips. Checked as a step.
Status CopyParameters(const ConstParameterArrays& old_arrays, size_t count, int state_arrays,
                      const ParameterArrays& new_arrays);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_STEP_PARAMETER_ARRAYS_H_
