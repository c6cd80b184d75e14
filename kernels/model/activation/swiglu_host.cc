#include "kernels/model/activation/swiglu.h"
#include "kernels/runtime/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/model/activation/swiglu_host.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/runtime/common/float_environment.h"
#include "kernels/runtime/simd/arguments.h"
#include "kernels/runtime/simd/f32x16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {

template <typename T>
HWY_INLINE void SwigluForwardLoop(const SwigluShape& shape, const T* gate, const T* up, T* y) {
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
HWY_INLINE void SwigluBackwardLoop(const SwigluShape& shape, const T* dy, const T* gate,
                                   const T* up, T* dgate, T* dup) {
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

void SwigluForwardFloat(const SwigluShape& shape, const float* gate, const float* up, float* y) {
  SwigluForwardLoop(shape, gate, up, y);
}

void SwigluForwardBFloat16(const SwigluShape& shape, const BFloat16* gate, const BFloat16* up,
                           BFloat16* y) {
  SwigluForwardLoop(shape, gate, up, y);
}

void SwigluBackwardFloat(const SwigluShape& shape, const float* dy, const float* gate,
                         const float* up, float* dgate, float* dup) {
  SwigluBackwardLoop(shape, dy, gate, up, dgate, dup);
}

void SwigluBackwardBFloat16(const SwigluShape& shape, const BFloat16* dy, const BFloat16* gate,
                            const BFloat16* up, BFloat16* dgate, BFloat16* dup) {
  SwigluBackwardLoop(shape, dy, gate, up, dgate, dup);
}

}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace geminid::kernels {

GEMINID_KERNEL_EXPORT(SwigluForward);
GEMINID_KERNEL_EXPORT(SwigluBackward);

namespace {

// Elements of y, and from the first to the last element of a strided operand.
Status CountSwiglu(const SwigluShape& shape, size_t* dense, size_t* strided) {
  if (shape.gate_up_stride < shape.cols) return Status::kInvalidShape;
  *dense = 0;
  *strided = 0;
  if (shape.rows == 0 || shape.cols == 0) return Status::kOk;
  const Status status = CheckedProduct(shape.rows, shape.gate_up_stride, strided);
  if (status != Status::kOk) return status;
  *strided -= shape.gate_up_stride - shape.cols;
  *dense = shape.rows * shape.cols;
  return Status::kOk;
}

// Halves of one fused activation interleave without sharing an element: for strided rows only null
// pointers, alignment and "the same start" can be told apart, so overlap is checked when dense.
template <typename T>
Status CheckHalves(const SwigluShape& shape, size_t strided, const T* output,
                   std::initializer_list<const T*> inputs) {
  Status status = CheckBuffer(Buffer::Of(output, strided));
  for (const T* input : inputs) {
    if (status != Status::kOk) return status;
    const Buffer buffer = Buffer::Of(input, strided);
    status = shape.gate_up_stride == shape.cols
                 ? CheckInPlace(Buffer::Of(output, strided), {buffer})
                 : CheckBuffer(buffer);
  }
  return status;
}

}  // namespace

template <typename T>
Status SwigluForward(const SwigluShape& shape, const T* gate, const T* up, T* y) {
  size_t dense = 0;
  size_t strided = 0;
  Status status = CountSwiglu(shape, &dense, &strided);
  if (status != Status::kOk) return status;
  status =
      CheckBuffers({Buffer::Of(gate, strided), Buffer::Of(up, strided)}, {Buffer::Of(y, dense)});
  if (status != Status::kOk || dense == 0) return status;
  const ScopedFloatEnvironment environment;
  GEMINID_KERNEL_CALL(T, SwigluForward, shape, gate, up, y);
  return Status::kOk;
}

template <typename T>
Status SwigluBackward(const SwigluShape& shape, const T* dy, const T* gate, const T* up, T* dgate,
                      T* dup) {
  size_t dense = 0;
  size_t strided = 0;
  Status status = CountSwiglu(shape, &dense, &strided);
  if (status != Status::kOk || dense == 0) return status;
  if (dgate == dup) return Status::kOverlap;
  status = CheckBuffer(Buffer::Of(dy, dense));
  if (status != Status::kOk) return status;
  for (T* output : {dgate, dup}) {
    status = CheckHalves<T>(shape, strided, output, {gate, up});
    if (status != Status::kOk) return status;
    if (Overlaps(Buffer::Of(output, strided), Buffer::Of(dy, dense))) return Status::kOverlap;
  }
  const ScopedFloatEnvironment environment;
  GEMINID_KERNEL_CALL(T, SwigluBackward, shape, dy, gate, up, dgate, dup);
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
