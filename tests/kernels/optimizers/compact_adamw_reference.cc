#include "tests/kernels/optimizers/compact_adamw_reference.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/numeric/quantise/stochastic_rounding_rule.h"
#include "tests/kernels/optimizers/adamw_reference.h"

namespace geminid::kernels::reference {
namespace {

uint32_t LargestBits(const float* values, size_t count) {
  uint32_t largest = 0;
  for (size_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::bit_cast<uint32_t>(values[i]) & 0x7FFFFFFFu);
  }
  return largest;
}

}  // namespace

void AdamWCompact(const AdamWCoefficients& k, const float* gradient, size_t count, float* weight,
                  const EightBitMoments& moments) {
  for (size_t begin = 0, block = 0; begin < count; begin += kQuantiseBlock, ++block) {
    const size_t n = std::min(kQuantiseBlock, count - begin);
    uint8_t* avg_codes = moments.exp_avg + begin;
    uint8_t* root_codes = moments.exp_avg_sq_root + begin;
    float m[kQuantiseBlock], root[kQuantiseBlock];
    for (size_t i = 0; i < n; ++i) {
      m[i] = DecodeSigned(avg_codes[i], moments.exp_avg_scale[block]);
      root[i] = DecodeUnsigned(root_codes[i], moments.exp_avg_sq_root_scale[block]);
      float v = root[i] * root[i];
      AdamWElement(k, gradient[begin + i], &weight[begin + i], &m[i], &v);
      root[i] = std::sqrt(v);
    }
    const QuantiseScale avg_scale = ScaleOfLargest(LargestBits(m, n));
    const QuantiseScale root_scale = ScaleOfLargest(LargestBits(root, n));
    for (size_t i = 0; i < n; ++i) {
      avg_codes[i] = avg_scale.scale == avg_scale.scale ? EncodeSigned(m[i], avg_scale.inverse) : 0;
      root_codes[i] =
          root_scale.scale == root_scale.scale ? EncodeUnsigned(root[i], root_scale.inverse) : 0;
    }
    moments.exp_avg_scale[block] = avg_scale.scale;
    moments.exp_avg_sq_root_scale[block] = root_scale.scale;
  }
}

void AdamWCompact(const AdamWCoefficients& k, uint64_t step, uint64_t first_element,
                  const float* gradient, size_t count, float* weight,
                  const BFloat16Moments& moments) {
  for (size_t i = 0; i < count; ++i) {
    float m = moments.exp_avg[i].ToFloat();
    float v = moments.exp_avg_sq[i].ToFloat();
    AdamWElement(k, gradient[i], &weight[i], &m, &v);
    const uint64_t index = first_element + i;
    const uint32_t random =
        RoundingBits(RoundingKey(step, index >> 32), static_cast<uint32_t>(index));
    moments.exp_avg[i] = RoundStochastically(m, random & 0xFFFFu);
    moments.exp_avg_sq[i] = RoundStochastically(v, random >> 16);
  }
}

}  // namespace geminid::kernels::reference
