#ifndef GEMINID_KERNELS_OPTIMIZERS_ADAMW_SMALL_MOMENTS_H_
#define GEMINID_KERNELS_OPTIMIZERS_ADAMW_SMALL_MOMENTS_H_

#include <cstddef>

#include "kernels/optimizers/adamw/adamw_coefficients.h"
#include "kernels/optimizers/step/parameter_arrays.h"

// AdamW's loop over moments of StateForm::kBFloat16. Internal to this folder: nothing is checked.
namespace geminid::kernels {

// Whether this loop supports the forms: kSplit with bf16 or fp32 gradients, and kFloat with fp32
// gradients. Other forms take the general loop for rules.
bool HasSmallMomentsLoop(const ParameterArrays& arrays, const GradientArray& gradient);

// Gives the bits of AdamWRule and of StateRounding. The caller holds a ScopedFloatEnvironment.
void AdamWSmallMoments(const AdamWCoefficients& k, const ConstParameterArrays& old_arrays,
                       const GradientArray& gradient, size_t count,
                       const ParameterArrays& new_arrays);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_ADAMW_SMALL_MOMENTS_H_
