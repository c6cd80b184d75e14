#ifndef GEMINID_KERNELS_OPTIMIZERS_ADAMW_ADAMW_H_
#define GEMINID_KERNELS_OPTIMIZERS_ADAMW_ADAMW_H_

#include <cstddef>
#include <cstdint>

#include "kernels/optimizers/step/parameter_arrays.h"
#include "kernels/runtime/common/bfloat16.h"
#include "kernels/runtime/common/status.h"

// AdamW, "Decoupled Weight Decay Regularization" (Loshchilov and Hutter, 2019), algorithm 2 with
// a schedule multiplier of 1 and the decay scaled by the learning rate, as PyTorch does:
//
//   g  = grad_scale * gradient
//   m' = beta1 m + (1 - beta1) g
//   v' = beta2 v + (1 - beta2) g^2
//   w' = w - (learning_rate weight_decay w + c1 m' / (c2 sqrt(v') + epsilon))
//   c1 = learning_rate / (1 - beta1^step),  c2 = 1 / sqrt(1 - beta2^step)
//
// All arithmetic per element is fp32 in exactly this order, without fused multiply-add. It runs in
// the default IEEE-754 environment, whatever the calling thread has set. c1, c2 and the other
// factors are computed in float64 and rounded once. So the bits depend on the element and the
// options only: not on the instruction set, the buffer's address, the form (streaming or in place)
// or how a tensor is cut into calls. Every NaN written is 0x7FC00000.
//
// Error of one step against float64: at most 1e-6 of |w| + |w' - w| for w', and of the sum of the
// magnitudes of the two terms for m' and v' (subnormal results: one subnormal step).
namespace geminid::kernels {

struct AdamWOptions {
  double learning_rate = 1e-3;  // >= 0
  double beta1 = 0.9;           // [0, 1)
  double beta2 = 0.999;         // [0, 1)
  double epsilon = 1e-8;        // > 0, also as a float: it prevents 0 / 0
  double weight_decay = 0.0;    // >= 0
  uint64_t step = 1;            // >= 1: the number of this update
  double grad_scale = 1.0;      // finite or NaN: clip coefficient / loss scale
};

// kInvalidParameter unless every option is in its range and every factor derived from it is a
// finite float. The kernels check the same; callers use this to refuse a configuration early.
Status CheckAdamWOptions(const AdamWOptions& options);

// The state of `count` parameters at 12 bytes each; see kernels/numeric/split_master for the first
// two.
struct SplitState {
  BFloat16* weight;
  int16_t* remainder;
  float* exp_avg;     // m
  float* exp_avg_sq;  // v
};
struct ConstSplitState {
  const BFloat16* weight;
  const int16_t* remainder;
  const float* exp_avg;
  const float* exp_avg_sq;
};

// The state of `count` parameters trained in fp32, 12 bytes each.
struct MasterState {
  float* weight;
  float* exp_avg;
  float* exp_avg_sq;
};
struct ConstMasterState {
  const float* weight;
  const float* exp_avg;
  const float* exp_avg_sq;
};

// All functions below: element alignment suffices, any thread, no allocation, never blocks, no
// byte read or written outside the arrays. Callers use several cores by cutting the arrays.

// Out of place: writes a new version of the state beside the old one. New buffers are disjoint from
// all others. If all outputs reach a 64-byte boundary at the same element, stores bypass the cache,
// else they are ordinary stores. They are globally visible on return, before any later store of
// this thread. Traffic per parameter: 26 bytes with a bf16 gradient, 28 with fp32.
Status AdamWSplitOutOfPlace(const AdamWOptions& options, const ConstSplitState& old_state,
                            const BFloat16* gradient, size_t count, const SplitState& new_state);
Status AdamWSplitOutOfPlace(const AdamWOptions& options, const ConstSplitState& old_state,
                            const float* gradient, size_t count, const SplitState& new_state);
Status AdamWMasterOutOfPlace(const AdamWOptions& options, const ConstMasterState& old_state,
                             const float* gradient, size_t count, const MasterState& new_state);

// In place, with ordinary stores: for state that stays in the cache or needs no second version.
Status AdamWSplitInPlace(const AdamWOptions& options, const SplitState& state,
                         const BFloat16* gradient, size_t count);
Status AdamWSplitInPlace(const AdamWOptions& options, const SplitState& state,
                         const float* gradient, size_t count);
Status AdamWMasterInPlace(const AdamWOptions& options, const MasterState& state,
                          const float* gradient, size_t count);

// The same step, with the same bits, for every form of parameters and gradients. State arrays: m,
// v. Forms and threads as in kernels/optimizers/step/elementwise.h.
Status AdamWStep(const AdamWOptions& options, const ConstParameterArrays& old_arrays,
                 const GradientArray& gradient, size_t count, const ParameterArrays& new_arrays);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_ADAMW_ADAMW_H_
