#ifndef GEMINID_TESTS_KERNELS_NUMERIC_ACCUMULATE_REFERENCE_H_
#define GEMINID_TESTS_KERNELS_NUMERIC_ACCUMULATE_REFERENCE_H_

#include <cstddef>

#include "kernels/runtime/common/bfloat16.h"

// The tests compare kernels/numeric/accumulate with these functions. They take one element at a
// time and do not check arguments.
namespace geminid::kernels::reference {

void Accumulate(const BFloat16* gradient, float scale, size_t count, float* accumulator);
void Accumulate(const float* gradient, float scale, size_t count, float* accumulator);

}  // namespace geminid::kernels::reference

#endif  // GEMINID_TESTS_KERNELS_NUMERIC_ACCUMULATE_REFERENCE_H_
