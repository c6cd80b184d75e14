#include "tests/kernels/numeric/accumulate_reference.h"

#include <bit>
#include <cstdint>

namespace geminid::kernels::reference {
namespace {

float Sum(float accumulator, float gradient, float scale) {
  const float product = gradient * scale;
  const float sum = accumulator + product;
  return sum == sum ? sum : std::bit_cast<float>(uint32_t{0x7FC00000});
}

}  // namespace

void Accumulate(const BFloat16* gradient, float scale, size_t count, float* accumulator) {
  for (size_t i = 0; i < count; ++i) {
    accumulator[i] = Sum(accumulator[i], gradient[i].ToFloat(), scale);
  }
}

void Accumulate(const float* gradient, float scale, size_t count, float* accumulator) {
  for (size_t i = 0; i < count; ++i) accumulator[i] = Sum(accumulator[i], gradient[i], scale);
}

}  // namespace geminid::kernels::reference
