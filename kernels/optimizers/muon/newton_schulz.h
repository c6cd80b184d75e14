#ifndef GEMINID_KERNELS_OPTIMIZERS_MUON_NEWTON_SCHULZ_H_
#define GEMINID_KERNELS_OPTIMIZERS_MUON_NEWTON_SCHULZ_H_

#include <cstddef>
#include <cstdint>

#include "kernels/runtime/common/bfloat16.h"
#include "kernels/runtime/common/status.h"
#include "kernels/runtime/parallel/thread_pool.h"

// The iteration of Newton and Schulz with the coefficients of Jordan et al.: five times
//
//   x = a x + (b g + c g g) x,   g = x x^T
//
// starting from u over its Frobenius norm. g has the shorter side: with more rows than columns it
// is x^T x, from the right. The iteration brings singular values near 1, to about 0.7 to 1.2. A
// step multiplies tiny ones by a alone: those below about 1/500 of the norm stay smaller, and are
// mostly the rounding of the products.
namespace geminid::kernels {

inline constexpr int kNewtonSchulzSteps = 5;
inline constexpr float kNewtonSchulzA = 3.4445F;
inline constexpr float kNewtonSchulzB = -4.7750F;
inline constexpr float kNewtonSchulzC = 2.0315F;
// A smaller norm counts as this.
inline constexpr double kNewtonSchulzLeastNorm = 1e-7;

struct NewtonSchulzSpace {
  float* wide = nullptr;     // rows x cols: u, overwritten
  BFloat16* x = nullptr;     // rows x cols: the result
  BFloat16* gram = nullptr;  // the shorter side squared, as are the next two
  float* square = nullptr;
  BFloat16* polynomial = nullptr;
  void* products = nullptr;  // NewtonSchulzProductBytes
  size_t product_bytes = 0;
};

// Bytes that the products of such matrices need on `threads` threads.
Status NewtonSchulzProductBytes(uint64_t rows, uint64_t cols, size_t threads, size_t* bytes);

// A u that is not finite gives an x of NaN.
Status NewtonSchulz(uint64_t rows, uint64_t cols, const NewtonSchulzSpace& space, ThreadPool* pool);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_MUON_NEWTON_SCHULZ_H_
