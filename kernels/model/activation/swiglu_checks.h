// Argument checks of SwiGLU. Internal to it.
#ifndef GEMINID_KERNELS_MODEL_ACTIVATION_SWIGLU_CHECKS_H_
#define GEMINID_KERNELS_MODEL_ACTIVATION_SWIGLU_CHECKS_H_

#include <cstddef>
#include <initializer_list>

#include "kernels/model/activation/swiglu.h"
#include "kernels/runtime/simd/arguments.h"

namespace geminid::kernels {

// Counts the elements of y, and those from the first to the last of a strided operand.
inline Status CountSwiglu(const SwigluShape& shape, size_t* dense, size_t* strided) {
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

// Gate and up may be halves of one fused activation, which interleave without sharing an element.
// So strided rows are checked only for null pointers and alignment; dense rows also for overlap.
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

template <typename T>
Status CheckSwigluForward(const SwigluShape& shape, const T* gate, const T* up, const T* y,
                          size_t* dense) {
  size_t strided = 0;
  const Status status = CountSwiglu(shape, dense, &strided);
  if (status != Status::kOk) return status;
  return CheckBuffers({Buffer::Of(gate, strided), Buffer::Of(up, strided)},
                      {Buffer::Of(y, *dense)});
}

template <typename T>
Status CheckSwigluBackward(const SwigluShape& shape, const T* dy, const T* gate, const T* up,
                           const T* dgate, const T* dup, size_t* dense) {
  size_t strided = 0;
  Status status = CountSwiglu(shape, dense, &strided);
  if (status != Status::kOk || *dense == 0) return status;
  if (dgate == dup) return Status::kOverlap;
  status = CheckBuffer(Buffer::Of(dy, *dense));
  if (status != Status::kOk) return status;
  for (const T* output : {dgate, dup}) {
    status = CheckHalves<T>(shape, strided, output, {gate, up});
    if (status != Status::kOk) return status;
    if (Overlaps(Buffer::Of(output, strided), Buffer::Of(dy, *dense))) return Status::kOverlap;
  }
  return Status::kOk;
}

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_ACTIVATION_SWIGLU_CHECKS_H_
