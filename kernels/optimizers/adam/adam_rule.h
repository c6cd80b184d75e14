#ifndef GEMINID_KERNELS_OPTIMIZERS_ADAM_ADAM_RULE_H_
#define GEMINID_KERNELS_OPTIMIZERS_ADAM_ADAM_RULE_H_

#include "kernels/optimizers/adamw/adamw_rule.h"

// Adam with the decay in the gradient; see kernels/optimizers/step/rule.h.
namespace geminid::kernels {

struct AdamRule {
  static constexpr int kStates = 2;
  static constexpr int kFactors = 0;

  template <class F>
  GEMINID_HOST_DEVICE void operator()(Element<F>& e) const {
    F m = e.state[0], v = e.state[1];
    UpdateMoments(k, F(e.gradient * k.grad_scale + e.weight * weight_decay), m, v);
    e.weight = CanonicalNaN(e.weight - AdaptiveStep(k, m, v));
    e.state[0] = CanonicalNaN(m);
    e.state[1] = CanonicalNaN(v);
  }

  AdamWCoefficients k;
  float weight_decay;
};

Status MakeRule(const AdamWOptions& options, AdamRule* rule);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_ADAM_ADAM_RULE_H_
