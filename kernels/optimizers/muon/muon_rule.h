#ifndef GEMINID_KERNELS_OPTIMIZERS_MUON_MUON_RULE_H_
#define GEMINID_KERNELS_OPTIMIZERS_MUON_MUON_RULE_H_

#include "kernels/optimizers/muon/muon.h"
#include "kernels/optimizers/step/rule.h"
#include "kernels/runtime/common/host_device.h"

// Muon's two passes over elements; see kernels/optimizers/step/rule.h. Between them the iteration
// works on the whole matrix.
namespace geminid::kernels {

// Replaces the weight by u.
struct MuonMomentumRule {
  static constexpr int kStates = 1;
  static constexpr int kFactors = 0;

  template <class F>
  GEMINID_HOST_DEVICE void operator()(Element<F>& e) const {
    const F g = e.gradient * grad_scale;
    const F m = e.state[0] * momentum + g * one_minus_momentum;
    e.weight = CanonicalNaN(m * of_momentum + g * of_gradient);
    e.state[0] = CanonicalNaN(m);
  }

  float grad_scale;
  float momentum;
  float one_minus_momentum;
  float of_momentum;  // the factors of m' and of g in u: 1 and 0 without nesterov
  float of_gradient;
};

// Element::gradient holds o.
struct MuonRule {
  static constexpr int kStates = 0;
  static constexpr int kFactors = 0;

  template <class F>
  GEMINID_HOST_DEVICE void operator()(Element<F>& e) const {
    e.weight = CanonicalNaN(e.weight - (e.weight * decay_rate + e.gradient * rate));
  }

  float rate;        // learning_rate * scale
  float decay_rate;  // learning_rate * weight_decay
};

Status MakeRules(const MuonOptions& options, const MatrixShape& shape, MuonMomentumRule* momentum,
                 MuonRule* rule);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_MUON_MUON_RULE_H_
