#include "kernels/adamw/adamw_reference.h"

#include "kernels/adamw/adamw_rule.h"

namespace geminid::kernels::reference {

void AdamWElement(const AdamWCoefficients& k, float gradient, float* weight, float* exp_avg,
                  float* exp_avg_sq) {
  AdamWRule(k, gradient, weight, exp_avg, exp_avg_sq);
}

}  // namespace geminid::kernels::reference
