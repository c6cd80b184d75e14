#ifndef GEMINID_KERNELS_OPTIMIZERS_LARS_LARS_RULE_H_
#define GEMINID_KERNELS_OPTIMIZERS_LARS_LARS_RULE_H_

#include "kernels/optimizers/lars/lars.h"
#include "kernels/optimizers/step/rule.h"
#include "kernels/runtime/common/host_device.h"

// LARS's second pass; the first is ScaledGradientRule. See kernels/optimizers/step/rule.h.
namespace geminid::kernels {

struct LarsRule {
  static constexpr int kStates = 1;
  static constexpr int kFactors = 0;

  template <class F>
  GEMINID_HOST_DEVICE void operator()(Element<F>& e) const {
    const F d = e.gradient * grad_scale + e.weight * weight_decay;
    const F b = e.state[0] * momentum + d * trust;
    e.weight = CanonicalNaN(e.weight - b * learning_rate);
    e.state[0] = CanonicalNaN(b);
  }

  float grad_scale;
  float weight_decay;
  float trust;
  float momentum;
  float learning_rate;
};

Status MakeRule(const LarsOptions& options, const LarsNorms& norms, LarsRule* rule);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_LARS_LARS_RULE_H_
