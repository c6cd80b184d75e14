#ifndef GEMINID_KERNELS_OPTIMIZERS_CAME_CAME_RULE_H_
#define GEMINID_KERNELS_OPTIMIZERS_CAME_CAME_RULE_H_

#include "kernels/optimizers/adafactor/adafactor_rule.h"
#include "kernels/optimizers/came/came.h"

// CAME's passes over a piece of one row; see kernels/optimizers/step/rule.h. Element::factor holds
// the column's scales: [0] from R and C, [1] from U and S.
namespace geminid::kernels {

// Replaces the weight by u - m'.
struct CameResidualRule {
  static constexpr int kStates = 1;
  static constexpr int kFactors = 1;

  template <class F>
  GEMINID_HOST_DEVICE void operator()(Element<F>& e) const {
    const F u = ClippedUpdate(k, e);
    e.weight = u - (e.state[0] * k.beta1 + u * k.one_minus_beta1);
  }

  AdafactorCoefficients k;
};

struct CameRule {
  static constexpr int kStates = 1;
  static constexpr int kFactors = 2;

  template <class F>
  GEMINID_HOST_DEVICE void operator()(Element<F>& e) const {
    const F m = e.state[0] * k.beta1 + ClippedUpdate(k, e) * k.one_minus_beta1;
    const F update = (m * confidence_row_scale) * e.factor[1];
    e.weight = CanonicalNaN(e.weight - (e.weight * k.decay_rate + update * k.rate));
    e.state[0] = CanonicalNaN(m);
  }

  AdafactorCoefficients k;
  float confidence_row_scale;
};

// Fills in all coefficients except row_scale, which becomes 1.
Status MakeCoefficients(const CameOptions& options, const FactorShape& shape, double update_squares,
                        AdafactorCoefficients* k);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_CAME_CAME_RULE_H_
