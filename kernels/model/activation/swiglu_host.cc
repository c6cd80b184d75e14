#include "kernels/model/activation/swiglu.h"
#include "kernels/runtime/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/model/activation/swiglu_host.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/model/activation/swiglu_checks.h"
#include "kernels/runtime/common/float_environment.h"
#include "kernels/runtime/simd/f32x16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {

template <typename T>
void SwigluForwardLoop(const SwigluShape& shape, const T* gate, const T* up, T* y) {
  for (size_t r = 0; r < shape.rows; ++r) {
    const T* gate_row = gate + r * shape.gate_up_stride;
    const T* up_row = up + r * shape.gate_up_stride;
    T* y_row = y + r * shape.cols;
    for (size_t i = 0; i < shape.cols; i += kWidth) {
      const size_t n = shape.cols - i;
      const F32x16 g = LoadN(gate_row + i, n);
      StoreN(g * Sigmoid(g) * LoadN(up_row + i, n), y_row + i, n);
    }
  }
}

template <typename T>
void SwigluBackwardLoop(const SwigluShape& shape, const T* dy, const T* gate, const T* up, T* dgate,
                        T* dup) {
  const F32x16 one = Set(1.0F);
  for (size_t r = 0; r < shape.rows; ++r) {
    const size_t row = r * shape.gate_up_stride;
    for (size_t i = 0; i < shape.cols; i += kWidth) {
      const size_t n = shape.cols - i;
      const F32x16 g = LoadN(gate + row + i, n);
      const F32x16 u = LoadN(up + row + i, n);
      const F32x16 d = LoadN(dy + r * shape.cols + i, n);
      const F32x16 s = Sigmoid(g);
      StoreN(d * (g * s), dup + row + i, n);
      StoreN(d * u * (s * MulAdd(g, one - s, one)), dgate + row + i, n);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace geminid::kernels {

template <typename T>
Status SwigluForward(const SwigluShape& shape, const T* gate, const T* up, T* y) {
  size_t dense = 0;
  const Status status = CheckSwigluForward(shape, gate, up, y, &dense);
  if (status != Status::kOk || dense == 0) return status;
  const ScopedFloatEnvironment environment;
  GEMINID_KERNEL_LOOP(SwigluForwardLoop<T>)(shape, gate, up, y);
  return Status::kOk;
}

template <typename T>
Status SwigluBackward(const SwigluShape& shape, const T* dy, const T* gate, const T* up, T* dgate,
                      T* dup) {
  size_t dense = 0;
  const Status status = CheckSwigluBackward(shape, dy, gate, up, dgate, dup, &dense);
  if (status != Status::kOk || dense == 0) return status;
  const ScopedFloatEnvironment environment;
  GEMINID_KERNEL_LOOP(SwigluBackwardLoop<T>)(shape, dy, gate, up, dgate, dup);
  return Status::kOk;
}

template Status SwigluForward(const SwigluShape&, const float*, const float*, float*);
template Status SwigluForward(const SwigluShape&, const BFloat16*, const BFloat16*, BFloat16*);
template Status SwigluBackward(const SwigluShape&, const float*, const float*, const float*, float*,
                               float*);
template Status SwigluBackward(const SwigluShape&, const BFloat16*, const BFloat16*,
                               const BFloat16*, BFloat16*, BFloat16*);

}  // namespace geminid::kernels
#endif  // HWY_ONCE
