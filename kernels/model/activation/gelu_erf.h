// GELU in its exact form (arXiv:1606.08415), as GPT-NeoX has it: with the normal distribution's
// cumulative Phi and density phi,
//
//   gelu(x) = x Phi(x);  gelu'(x) = Phi(x) + x phi(x)
//
// Phi(-a) = q(a) e^(-a^2/2), a >= 0, where q is smooth: a polynomial of (a - 4) / (a + 4), fitted
// to a relative error of 5e-9. So the left tail keeps its digits. fp32 arithmetic, one rounding to
// T. Elementwise: any split of an array into calls gives the same bits. T is float or BFloat16.
#ifndef GEMINID_KERNELS_MODEL_ACTIVATION_GELU_ERF_H_
#define GEMINID_KERNELS_MODEL_ACTIVATION_GELU_ERF_H_

#include <cstddef>

#include "kernels/runtime/common/bfloat16.h"
#include "kernels/runtime/common/status.h"

namespace geminid::kernels {

// y[i] = gelu(x[i]), i < count. `y` may be `x`.
template <typename T>
Status GeluErfForward(const T* x, size_t count, T* y);

// dx[i] = dy[i] gelu'(x[i]). `dx` may be `dy` or `x`.
template <typename T>
Status GeluErfBackward(const T* dy, const T* x, size_t count, T* dx);

// The coefficients of q, beginning with that of the highest power. They are a function and not an
// array so that device code can use them.
inline constexpr size_t kGeluTailTerms = 11;
constexpr float GeluTailTerm(size_t i) {
  constexpr float kTerms[kGeluTailTerms] = {
      1.2793398127541877e-05F,  -4.5400891394820064e-05F, -1.7321997438557446e-04F,
      6.407137843780220e-04F,   5.024307756684720e-04F,   -8.492745459079742e-03F,
      3.086564689874649e-02F,   -7.17073529958725e-02F,   1.2437920272350311e-01F,
      -1.7039772868156433e-01F, 9.441064298152924e-02F};
  return kTerms[i];
}
inline constexpr float kGeluTailCentre = 4.0F;
inline constexpr float kGeluTailEnd = 16.0F;                // beyond it e^(-a^2/2) is 0
inline constexpr float kGeluDensity = 0.3989422804014327F;  // 1 / sqrt(2 pi)

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_ACTIVATION_GELU_ERF_H_
