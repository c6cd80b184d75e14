#include "tests/kernels/numeric/cast_reference.h"

namespace geminid::kernels::reference {

void CastToBFloat16(const float* input, size_t count, BFloat16* output) {
  for (size_t i = 0; i < count; ++i) output[i] = BFloat16::FromFloat(input[i]);
}

void CastToFloat(const BFloat16* input, size_t count, float* output) {
  for (size_t i = 0; i < count; ++i) output[i] = input[i].ToFloat();
}

void CastToFloat16(const float* input, size_t count, Float16* output) {
  for (size_t i = 0; i < count; ++i) output[i] = Float16::FromFloat(input[i]);
}

void CastToFloat(const Float16* input, size_t count, float* output) {
  for (size_t i = 0; i < count; ++i) output[i] = input[i].ToFloat();
}

}  // namespace geminid::kernels::reference
