#ifndef GEMINID_TESTS_KERNELS_NUMERIC_NORM_REFERENCE_H_
#define GEMINID_TESTS_KERNELS_NUMERIC_NORM_REFERENCE_H_

#include <cstddef>

#include "kernels/runtime/common/bfloat16.h"

// The order of additions that kernels/numeric/norm promises, one at a time. Arguments are not
// checked. Returns `sum` with the squares added.
namespace geminid::kernels::reference {

double AddSquares(const BFloat16* values, size_t count, double sum);
double AddSquares(const float* values, size_t count, double sum);

}  // namespace geminid::kernels::reference

#endif  // GEMINID_TESTS_KERNELS_NUMERIC_NORM_REFERENCE_H_
