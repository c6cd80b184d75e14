#ifndef GEMINID_KERNELS_OPTIMIZERS_STEP_HYPERPARAMETERS_H_
#define GEMINID_KERNELS_OPTIMIZERS_STEP_HYPERPARAMETERS_H_

#include <cmath>
#include <cstdint>
#include <initializer_list>

// Checks and arithmetic of hyperparameters. All but IsGradScale are written so that a NaN fails.
namespace geminid::kernels {

inline bool IsFraction(double x) { return x >= 0 && x < 1; }

// Positive as a float too: an epsilon that prevents 0 / 0 must not be rounded to 0.
inline bool IsPositiveFloat(double x) {
  const float rounded = static_cast<float>(x);
  return rounded > 0 && std::isfinite(rounded);
}

// The factor of gradients. NaN is valid: it is the clip coefficient of a gradient that has a NaN,
// and makes weights and state NaN.
inline bool IsGradScale(float x) { return !std::isinf(x); }

inline bool AllFinite(std::initializer_list<float> values) {
  for (const float value : values) {
    if (!std::isfinite(value)) return false;
  }
  return true;
}

// base^exponent by squaring: the same float64 on every machine, which std::pow's is not. The
// relative error is at most about exponent x 2^-53, which is below 1e-13 while the power of any
// beta < 1 is large enough to matter in 1 - beta^step.
inline double Power(double base, uint64_t exponent) {
  double result = 1.0;
  for (; exponent != 0; exponent >>= 1) {
    if (exponent & 1) result *= base;
    base *= base;
  }
  return result;
}

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_STEP_HYPERPARAMETERS_H_
