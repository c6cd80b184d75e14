#ifndef GEMINID_KERNELS_ADAMW_ADAMW_RULE_H_
#define GEMINID_KERNELS_ADAMW_ADAMW_RULE_H_

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/adamw/adamw_coefficients.h"
#include "kernels/common/host_device.h"

namespace geminid::kernels {

GEMINID_HOST_DEVICE inline float WithCanonicalNaN(float x) {
  return x == x ? x : std::bit_cast<float>(uint32_t{0x7FC00000});
}

// One parameter, in place: the definition of the bits that every form of AdamW writes, on the host
// and on a GPU, one operation a line. `gradient` is unscaled.
GEMINID_HOST_DEVICE inline void AdamWRule(const AdamWCoefficients& k, float gradient, float* weight,
                                          float* exp_avg, float* exp_avg_sq) {
  const float g = gradient * k.grad_scale;

  const float kept_avg = *exp_avg * k.beta1;
  const float new_avg = g * k.one_minus_beta1;
  const float m = kept_avg + new_avg;

  const float kept_sq = *exp_avg_sq * k.beta2;
  const float scaled_g = g * k.one_minus_beta2;
  const float new_sq = scaled_g * g;
  const float v = kept_sq + new_sq;

  const float root = sqrtf(v);
  const float corrected_root = root * k.correction2;
  const float denominator = corrected_root + k.epsilon;
  const float numerator = m * k.step_size;
  const float step = numerator / denominator;
  const float decay = *weight * k.decay_rate;
  const float change = decay + step;

  *weight = WithCanonicalNaN(*weight - change);
  *exp_avg = WithCanonicalNaN(m);
  *exp_avg_sq = WithCanonicalNaN(v);
}

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_ADAMW_ADAMW_RULE_H_
