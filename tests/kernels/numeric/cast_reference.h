#ifndef GEMINID_TESTS_KERNELS_NUMERIC_CAST_REFERENCE_H_
#define GEMINID_TESTS_KERNELS_NUMERIC_CAST_REFERENCE_H_

#include <cstddef>

#include "kernels/runtime/common/bfloat16.h"
#include "kernels/runtime/common/float16.h"

// The tests compare kernels/numeric/cast with these functions. They take one element at a time and
// do not check arguments.
namespace geminid::kernels::reference {

void CastToBFloat16(const float* input, size_t count, BFloat16* output);
void CastToFloat(const BFloat16* input, size_t count, float* output);
void CastToFloat16(const float* input, size_t count, Float16* output);
void CastToFloat(const Float16* input, size_t count, float* output);

}  // namespace geminid::kernels::reference

#endif  // GEMINID_TESTS_KERNELS_NUMERIC_CAST_REFERENCE_H_
