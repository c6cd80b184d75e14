#ifndef GEMINID_KERNELS_OPTIMIZERS_ADAMW_ADAMW_RULE_H_
#define GEMINID_KERNELS_OPTIMIZERS_ADAMW_ADAMW_RULE_H_

#include "kernels/optimizers/adamw/adamw_coefficients.h"
#include "kernels/optimizers/step/rule.h"
#include "kernels/runtime/common/host_device.h"

// AdamW, and the functions it shares with Adam and LAMB; see kernels/optimizers/step/rule.h.
namespace geminid::kernels {

// The new moments from the gradient: v adds (g one_minus_beta2) g, in AdamW's order.
template <class K, class F>
GEMINID_HOST_DEVICE inline void UpdateMoments(const K& k, F g, F& m, F& v) {
  m = m * k.beta1 + g * k.one_minus_beta1;
  v = v * k.beta2 + (g * k.one_minus_beta2) * g;
}

// step_size m / (correction2 sqrt(v) + epsilon).
template <class K, class F>
GEMINID_HOST_DEVICE inline F AdaptiveStep(const K& k, F m, F v) {
  return (m * k.step_size) / (SquareRoot(v) * k.correction2 + k.epsilon);
}

struct AdamWRule {
  static constexpr int kStates = 2;
  static constexpr int kFactors = 0;

  template <class F>
  GEMINID_HOST_DEVICE void operator()(Element<F>& e) const {
    F m = e.state[0], v = e.state[1];
    UpdateMoments(k, F(e.gradient * k.grad_scale), m, v);
    const F step = AdaptiveStep(k, m, v);
    e.weight = CanonicalNaN(e.weight - (e.weight * k.decay_rate + step));
    e.state[0] = CanonicalNaN(m);
    e.state[1] = CanonicalNaN(v);
  }

  AdamWCoefficients k;
};

Status MakeRule(const AdamWOptions& options, AdamWRule* rule);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_ADAMW_ADAMW_RULE_H_
