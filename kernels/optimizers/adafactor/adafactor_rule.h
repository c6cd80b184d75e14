#ifndef GEMINID_KERNELS_OPTIMIZERS_ADAFACTOR_ADAFACTOR_RULE_H_
#define GEMINID_KERNELS_OPTIMIZERS_ADAFACTOR_ADAFACTOR_RULE_H_

#include "kernels/optimizers/adafactor/adafactor.h"
#include "kernels/optimizers/step/rule.h"
#include "kernels/runtime/common/host_device.h"

// Adafactor's passes over a piece of one row; see kernels/optimizers/step/rule.h.
// Element::factor[0] is the scale of the column.
namespace geminid::kernels {

// Replaces the weight by u before clipping.
struct FactoredUpdateRule {
  static constexpr int kStates = 0;
  static constexpr int kFactors = 1;

  template <class F>
  GEMINID_HOST_DEVICE void operator()(Element<F>& e) const {
    e.weight = ((e.gradient * grad_scale) * row_scale) * e.factor[0];
  }

  float grad_scale;
  float row_scale;
};

struct AdafactorCoefficients {
  float grad_scale;
  float row_scale;
  float clip;  // 1 / max(1, RMS(u) / clip_threshold)
  float beta1;
  float one_minus_beta1;
  float rate;
  float decay_rate;  // rate * weight_decay
};

template <class F>
GEMINID_HOST_DEVICE inline F ClippedUpdate(const AdafactorCoefficients& k, const Element<F>& e) {
  return (((e.gradient * k.grad_scale) * k.row_scale) * e.factor[0]) * k.clip;
}

struct AdafactorRule {
  static constexpr int kStates = 0;
  static constexpr int kFactors = 1;

  template <class F>
  GEMINID_HOST_DEVICE void operator()(Element<F>& e) const {
    const F u = ClippedUpdate(k, e);
    e.weight = CanonicalNaN(e.weight - (e.weight * k.decay_rate + u * k.rate));
  }

  AdafactorCoefficients k;
};

struct AdafactorMomentumRule {
  static constexpr int kStates = 1;
  static constexpr int kFactors = 1;

  template <class F>
  GEMINID_HOST_DEVICE void operator()(Element<F>& e) const {
    const F m = e.state[0] * k.beta1 + ClippedUpdate(k, e) * k.one_minus_beta1;
    e.weight = CanonicalNaN(e.weight - (e.weight * k.decay_rate + m * k.rate));
    e.state[0] = CanonicalNaN(m);
  }

  AdafactorCoefficients k;
};

// Fills in all coefficients except row_scale, which becomes 1.
Status MakeCoefficients(const AdafactorOptions& options, const FactorShape& shape,
                        const AdafactorNorms& norms, AdafactorCoefficients* k);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_ADAFACTOR_ADAFACTOR_RULE_H_
