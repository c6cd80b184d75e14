#ifndef GEMINID_KERNELS_OPTIMIZERS_LION_LION_RULE_H_
#define GEMINID_KERNELS_OPTIMIZERS_LION_LION_RULE_H_

#include "kernels/optimizers/lion/lion.h"
#include "kernels/optimizers/step/rule.h"
#include "kernels/runtime/common/host_device.h"

// Lion; see kernels/optimizers/step/rule.h.
namespace geminid::kernels {

struct LionRule {
  static constexpr int kStates = 1;
  static constexpr int kFactors = 0;

  template <class F>
  GEMINID_HOST_DEVICE void operator()(Element<F>& e) const {
    const F g = e.gradient * grad_scale;
    const F m = e.state[0];
    const F direction = Sign(F(m * beta1 + g * one_minus_beta1));
    e.weight = CanonicalNaN(e.weight - (e.weight * decay_rate + direction * learning_rate));
    e.state[0] = CanonicalNaN(m * beta2 + g * one_minus_beta2);
  }

  float grad_scale;
  float beta1;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float learning_rate;
  float decay_rate;  // learning_rate * weight_decay
};

Status MakeRule(const LionOptions& options, LionRule* rule);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_LION_LION_RULE_H_
