#ifndef GEMINID_TESTS_KERNELS_OPTIMIZERS_ADAMW_REFERENCE_H_
#define GEMINID_TESTS_KERNELS_OPTIMIZERS_ADAMW_REFERENCE_H_

#include "kernels/optimizers/adamw/adamw_coefficients.h"

namespace geminid::kernels::reference {

// One parameter, in place, by the rule. The tests compare every form of AdamW with this function.
void AdamWElement(const AdamWCoefficients& k, float gradient, float* weight, float* exp_avg,
                  float* exp_avg_sq);

}  // namespace geminid::kernels::reference

#endif  // GEMINID_TESTS_KERNELS_OPTIMIZERS_ADAMW_REFERENCE_H_
