#ifndef GEMINID_TESTS_KERNELS_OPTIMIZERS_COMPACT_ADAMW_REFERENCE_H_
#define GEMINID_TESTS_KERNELS_OPTIMIZERS_COMPACT_ADAMW_REFERENCE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/optimizers/adamw/adamw_coefficients.h"
#include "kernels/optimizers/compact_adamw/compact_adamw.h"

// One element at a time, in place, arguments unchecked: what the tests hold
// kernels/optimizers/compact_adamw against. Weights are masters; `first_element` is a multiple of
// kQuantiseBlock.
namespace geminid::kernels::reference {

void AdamWCompact(const AdamWCoefficients& k, const float* gradient, size_t count, float* weight,
                  const EightBitMoments& moments);
void AdamWCompact(const AdamWCoefficients& k, uint64_t step, uint64_t first_element,
                  const float* gradient, size_t count, float* weight,
                  const BFloat16Moments& moments);

}  // namespace geminid::kernels::reference

#endif  // GEMINID_TESTS_KERNELS_OPTIMIZERS_COMPACT_ADAMW_REFERENCE_H_
