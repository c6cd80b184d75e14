#ifndef GEMINID_KERNELS_OPTIMIZERS_STEP_ELEMENTWISE_H_
#define GEMINID_KERNELS_OPTIMIZERS_STEP_ELEMENTWISE_H_

#include <cstddef>

#include "kernels/optimizers/step/parameter_arrays.h"
#include "kernels/runtime/common/status.h"

// The passes that all optimizers share: they apply a rule (kernels/optimizers/step/rule.h) to every
// element of arrays of any form, in blocks that stay in the first-level cache.
//
// Rules for every optimizer's step:
//   - All arithmetic per element is fp32 in the rule's order, without fused multiply-add, in the
//     default IEEE-754 environment; coefficients are rounded once from float64. The bits depend on
//     the element and the options only: not on the instruction set, address, form (streaming or in
//     place), type of the gradient, or how a tensor is cut into calls. Every NaN written into
//     fp32 is 0x7FC00000.
//   - Sums are of float64 squares of fp32 values, in blocks of kSumBlock elements counted from the
//     start of each call (for Adafactor and CAME: of each piece of a row), 16 lanes folded as in
//     kernels/numeric/norm, and blocks as in its block_tree.h; over the rows of a matrix as in
//     column_chunks.h. So sums depend on how a tensor is cut into calls, but on nothing else.
//   - Element alignment suffices; any thread, no allocation, never blocks. Out of place the stores
//     bypass the cache where all new arrays reach a 64-byte boundary at the same element, and are
//     globally visible on return.
//   - Errors are returned before anything is written.
namespace geminid::kernels {

inline constexpr size_t kSumBlock = 1024;
// How far ahead lines are prefetched: hardware prefetchers stop at the ends of pages.
inline constexpr size_t kPrefetchElements = 256;

// One block, fp32 everywhere. Each output may be the same array as its input.
struct RuleBlock {
  size_t count;
  const float* gradient;
  const float* weight;
  float* new_weight;
  const float* state[kMaxStateArrays];
  float* new_state[kMaxStateArrays];
  const float* factor[2];
  bool store_state;    // false: new_state is not written
  bool stream;         // new_state is aligned to 64 bytes and is stored past the cache
  bool stream_weight;  // so is new_weight
};

// A rule's loop on the best instruction set of this machine.
struct RuleCall {
  const void* rule;
  void (*loop)(const void* rule, const RuleBlock& block);
  int states;   // state arrays it uses
  int factors;  // factor arrays it uses
};

// The rule whose squares several optimizers sum first; see kernels/optimizers/step/rule.h.
struct ScaledGradientRule;
RuleCall CallOf(const ScaledGradientRule& rule);

// The arrays that a pass reads. `factor` arrays are one fp32 per element.
struct ReadPass {
  ConstParameterArrays arrays = {};
  GradientArray gradient = {};
  const float* factor[2] = {};
  size_t count = 0;

  ReadPass From(size_t offset) const;
};

// Applies the rule and stores. The arrays are checked; the caller holds a ScopedFloatEnvironment.
void UpdateElements(const RuleCall& call, const ReadPass& pass, const ParameterArrays& new_arrays);

// Where a pass adds squares of the rule's results and of the weights read; null: nowhere.
struct SquareTotals {
  double* result = nullptr;   // one sum
  double* weight = nullptr;   // one sum, of the weights read
  double* columns = nullptr;  // one sum per element
};

// Applies the rule, stores nothing, adds squares. Without weights in `pass.arrays` (all null) the
// rule gets weights of 0. A NaN sum is always the same quiet NaN.
void MeasureElements(const RuleCall& call, const ReadPass& pass, const SquareTotals& totals);

// Check, environment and UpdateElements: a whole step of an elementwise optimizer.
Status StepElements(const RuleCall& call, const ConstParameterArrays& old_arrays,
                    const GradientArray& gradient, size_t count, const ParameterArrays& new_arrays);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_STEP_ELEMENTWISE_H_
