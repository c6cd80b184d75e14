#include "tests/kernels/optimizers/adamw_reference.h"

#include "kernels/optimizers/adamw/adamw_rule.h"

namespace geminid::kernels::reference {

void AdamWElement(const AdamWCoefficients& k, float gradient, float* weight, float* exp_avg,
                  float* exp_avg_sq) {
  Element<float> e = {gradient, *weight, {*exp_avg, *exp_avg_sq}, {}};
  AdamWRule{k}(e);
  *weight = e.weight;
  *exp_avg = e.state[0];
  *exp_avg_sq = e.state[1];
}

}  // namespace geminid::kernels::reference
