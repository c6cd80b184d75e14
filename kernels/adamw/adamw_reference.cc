#include "kernels/adamw/adamw_reference.h"

#include <bit>
#include <cmath>
#include <cstdint>

namespace geminid::kernels::reference {
namespace {

float CanonicalNaN(float x) { return x == x ? x : std::bit_cast<float>(uint32_t{0x7FC00000}); }

}  // namespace

void AdamWElement(const AdamWCoefficients& k, float gradient, float* weight, float* exp_avg,
                  float* exp_avg_sq) {
  const float g = gradient * k.grad_scale;

  const float kept_avg = *exp_avg * k.beta1;
  const float new_avg = g * k.one_minus_beta1;
  const float m = kept_avg + new_avg;

  const float kept_sq = *exp_avg_sq * k.beta2;
  const float scaled_g = g * k.one_minus_beta2;
  const float new_sq = scaled_g * g;
  const float v = kept_sq + new_sq;

  const float root = std::sqrt(v);
  const float corrected_root = root * k.correction2;
  const float denominator = corrected_root + k.epsilon;
  const float numerator = m * k.step_size;
  const float step = numerator / denominator;
  const float decay = *weight * k.decay_rate;
  const float change = decay + step;

  *weight = CanonicalNaN(*weight - change);
  *exp_avg = CanonicalNaN(m);
  *exp_avg_sq = CanonicalNaN(v);
}

}  // namespace geminid::kernels::reference
