#include "kernels/model/activation/relu.h"
#include "kernels/runtime/simd/arguments.h"

namespace geminid::kernels {
namespace {

float Widen(float value) { return value; }
float Widen(BFloat16 value) { return value.ToFloat(); }

// Selects one value per element; the compiler vectorises this.
template <typename T>
T Passed(T x, T value) {
  return Widen(x) <= 0.0F ? T{} : value;
}

}  // namespace

template <typename T>
Status ReluForward(const T* x, size_t count, T* y) {
  const Status status = CheckInPlace(Buffer::Of(y, count), {Buffer::Of(x, count)});
  if (status != Status::kOk) return status;
  for (size_t i = 0; i < count; ++i) y[i] = Passed(x[i], x[i]);
  return Status::kOk;
}

template <typename T>
Status ReluBackward(const T* dy, const T* x, size_t count, T* dx) {
  const Status status =
      CheckInPlace(Buffer::Of(dx, count), {Buffer::Of(dy, count), Buffer::Of(x, count)});
  if (status != Status::kOk) return status;
  for (size_t i = 0; i < count; ++i) dx[i] = Passed(x[i], dy[i]);
  return Status::kOk;
}

template Status ReluForward(const float*, size_t, float*);
template Status ReluForward(const BFloat16*, size_t, BFloat16*);
template Status ReluBackward(const float*, const float*, size_t, float*);
template Status ReluBackward(const BFloat16*, const BFloat16*, size_t, BFloat16*);

}  // namespace geminid::kernels
