#ifndef GEMINID_KERNELS_OPTIMIZERS_SGD_SGD_RULE_H_
#define GEMINID_KERNELS_OPTIMIZERS_SGD_SGD_RULE_H_

#include "kernels/optimizers/sgd/sgd.h"
#include "kernels/optimizers/step/rule.h"
#include "kernels/runtime/common/host_device.h"

// Gradient descent; see kernels/optimizers/step/rule.h.
namespace geminid::kernels {

// Factors of 0 and 1 choose the variant: adding 0 x and multiplying by 1 change no finite number.
struct SgdCoefficients {
  float grad_scale;
  float early_decay;  // weight decay before the momentum
  float late_decay;   // weight decay after the momentum
  float kept;         // the factor of b in b': momentum; 0 at step 1
  float added;        // the factor of g in b': 1 - dampening; 1 at step 1
  float ahead;        // the factor of g in d: 1 with nesterov; else 0
  float buffer;       // the factor of b' in d: momentum with nesterov; else 1
  float learning_rate;
};

struct SgdRule {
  static constexpr int kStates = 0;
  static constexpr int kFactors = 0;

  template <class F>
  GEMINID_HOST_DEVICE void operator()(Element<F>& e) const {
    const F g = e.gradient * k.grad_scale + e.weight * k.early_decay;
    const F d = g + e.weight * k.late_decay;
    e.weight = CanonicalNaN(e.weight - d * k.learning_rate);
  }

  SgdCoefficients k;
};

struct MomentumRule {
  static constexpr int kStates = 1;
  static constexpr int kFactors = 0;

  template <class F>
  GEMINID_HOST_DEVICE void operator()(Element<F>& e) const {
    const F g = e.gradient * k.grad_scale + e.weight * k.early_decay;
    const F b = e.state[0] * k.kept + g * k.added;
    const F d = (g * k.ahead + b * k.buffer) + e.weight * k.late_decay;
    e.weight = CanonicalNaN(e.weight - d * k.learning_rate);
    e.state[0] = CanonicalNaN(b);
  }

  SgdCoefficients k;
};

Status MakeCoefficients(const SgdOptions& options, SgdCoefficients* k);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_SGD_SGD_RULE_H_
