#ifndef GEMINID_KERNELS_OPTIMIZERS_LAMB_LAMB_RULE_H_
#define GEMINID_KERNELS_OPTIMIZERS_LAMB_LAMB_RULE_H_

#include "kernels/optimizers/adamw/adamw_rule.h"
#include "kernels/optimizers/lamb/lamb.h"

// LAMB's two passes; see kernels/optimizers/step/rule.h.
namespace geminid::kernels {

struct LambCoefficients {
  float grad_scale;
  float coupled_decay;    // added to g; 0 if decoupled
  float decoupled_decay;  // added to u; 0 if not decoupled
  float beta1;
  float one_minus_beta1;  // beta3
  float beta2;
  float one_minus_beta2;
  float step_size;  // c1
  float correction2;
  float epsilon;
};

template <class F>
GEMINID_HOST_DEVICE inline F LambUpdate(const LambCoefficients& k, F gradient, F w, F& m, F& v) {
  UpdateMoments(k, F(gradient * k.grad_scale + w * k.coupled_decay), m, v);
  return AdaptiveStep(k, m, v) + w * k.decoupled_decay;
}

// Replaces the weight by u.
struct LambUpdateRule {
  static constexpr int kStates = 2;
  static constexpr int kFactors = 0;

  template <class F>
  GEMINID_HOST_DEVICE void operator()(Element<F>& e) const {
    e.weight = LambUpdate(k, e.gradient, e.weight, e.state[0], e.state[1]);
  }

  LambCoefficients k;
};

struct LambRule {
  static constexpr int kStates = 2;
  static constexpr int kFactors = 0;

  template <class F>
  GEMINID_HOST_DEVICE void operator()(Element<F>& e) const {
    F m = e.state[0], v = e.state[1];
    const F u = LambUpdate(k, e.gradient, e.weight, m, v);
    e.weight = CanonicalNaN(e.weight - u * rate);
    e.state[0] = CanonicalNaN(m);
    e.state[1] = CanonicalNaN(v);
  }

  LambCoefficients k;
  float rate;  // learning_rate trust
};

Status MakeRule(const LambOptions& options, LambUpdateRule* rule);
Status MakeRule(const LambOptions& options, const LambNorms& norms, LambRule* rule);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_LAMB_LAMB_RULE_H_
