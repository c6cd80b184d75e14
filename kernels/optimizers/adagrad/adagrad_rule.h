#ifndef GEMINID_KERNELS_OPTIMIZERS_ADAGRAD_ADAGRAD_RULE_H_
#define GEMINID_KERNELS_OPTIMIZERS_ADAGRAD_ADAGRAD_RULE_H_

#include "kernels/optimizers/adagrad/adagrad.h"
#include "kernels/optimizers/step/rule.h"
#include "kernels/runtime/common/host_device.h"

// Adagrad; see kernels/optimizers/step/rule.h.
namespace geminid::kernels {

struct AdagradRule {
  static constexpr int kStates = 1;
  static constexpr int kFactors = 0;

  template <class F>
  GEMINID_HOST_DEVICE void operator()(Element<F>& e) const {
    const F g = e.gradient * grad_scale + e.weight * weight_decay;
    const F s = e.state[0] + g * g;
    e.weight = CanonicalNaN(e.weight - (g * rate) / (SquareRoot(s) + epsilon));
    e.state[0] = CanonicalNaN(s);
  }

  float grad_scale;
  float weight_decay;
  float rate;
  float epsilon;
};

Status MakeRule(const AdagradOptions& options, AdagradRule* rule);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_ADAGRAD_ADAGRAD_RULE_H_
