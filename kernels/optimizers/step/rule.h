#ifndef GEMINID_KERNELS_OPTIMIZERS_STEP_RULE_H_
#define GEMINID_KERNELS_OPTIMIZERS_STEP_RULE_H_

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/runtime/common/host_device.h"

// A rule is the update of one element. It is written once, for a float F (the definition, and on
// GPUs) and for a vector of floats (kernels/optimizers/step/rule_loop-inl.h). Both do the
// operations in the order in which they are written, each rounded to fp32, so they give the same
// bits. Compile with contraction to fused multiply-add off.
//
//   struct SomeRule {
//     static constexpr int kStates, kFactors;  // how many of Element's arrays it uses
//     template <class F>
//     GEMINID_HOST_DEVICE void operator()(Element<F>& e) const;
//     float ...;  // coefficients, rounded once from float64
//   };
namespace geminid::kernels {

template <class F>
struct Element {
  F gradient;  // unscaled
  F weight;
  F state[2];
  F factor[2];  // read only
};

GEMINID_HOST_DEVICE inline float SquareRoot(float x) { return sqrtf(x); }

// Machines differ in which operand's NaN payload survives an operation; this makes results
// comparable bit for bit.
GEMINID_HOST_DEVICE inline float CanonicalNaN(float x) {
  return x == x ? x : std::bit_cast<float>(uint32_t{0x7FC00000});
}

// 1, -1, or x itself where it is a zero or NaN.
GEMINID_HOST_DEVICE inline float Sign(float x) { return x > 0 ? 1.0F : x < 0 ? -1.0F : x; }

// Replaces the weight by g, the scaled gradient, whose squares are summed.
struct ScaledGradientRule {
  static constexpr int kStates = 0;
  static constexpr int kFactors = 0;

  template <class F>
  GEMINID_HOST_DEVICE void operator()(Element<F>& e) const {
    e.weight = e.gradient * grad_scale;
  }

  float grad_scale;
};

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_STEP_RULE_H_
