#include "kernels/model/rotary/rotary.h"
#include "kernels/runtime/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/model/rotary/rotary_host.cc"
#include <cmath>

#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/model/rotary/checks.h"
#include "kernels/runtime/common/float_environment.h"
#include "kernels/runtime/simd/arguments.h"
#include "kernels/runtime/simd/f32x16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {

// Rotates one head: `low` and `high` are its two halves. sign is +1 forward, -1 backward.
template <typename T>
HWY_INLINE void RotateHead(const float* cos, const float* sin, size_t half, float sign, T* low,
                           T* high) {
  for (size_t i = 0; i < half; i += kWidth) {
    const size_t n = half - i;
    const F32x16 c = LoadN(cos + i, n);
    const F32x16 s = LoadN(sin + i, n) * Set(sign);
    const F32x16 a = LoadN(low + i, n);
    const F32x16 b = LoadN(high + i, n);
    StoreN(a * c - b * s, low + i, n);
    StoreN(b * c + a * s, high + i, n);
  }
}

template <typename T>
void RotateLoop(const RotaryShape& shape, const float* cos, const float* sin, float sign, T* x) {
  const size_t half = shape.head_dim / 2;
  for (size_t token = 0; token < shape.batch * shape.sequence; ++token) {
    const size_t row = (shape.first_position + token % shape.sequence) * half;
    T* heads = x + token * shape.token_stride;
    for (size_t h = 0; h < shape.heads; ++h) {
      T* low = heads + h * shape.HeadStride();
      RotateHead(cos + row, sin + row, half, sign, low, low + half);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace geminid::kernels {

namespace {

template <typename T>
Status Rotate(const RotaryShape& shape, const float* cos, const float* sin, float sign, T* x) {
  const Status status = CheckRotate(shape, cos, sin, x);
  if (status != Status::kOk) return status;
  const ScopedFloatEnvironment environment;
  GEMINID_KERNEL_LOOP(RotateLoop<T>)(shape, cos, sin, sign, x);
  return Status::kOk;
}

// angle_of(i): the rotation of pair i from one position to the next.
template <class AngleOf>
Status FillTable(size_t positions, size_t half, const AngleOf& angle_of, double length, float* cos,
                 float* sin) {
  size_t count = 0;
  Status status = CheckedProduct(positions, half, &count);
  if (status != Status::kOk) return status;
  status = CheckBuffers({}, {Buffer::Of(cos, count), Buffer::Of(sin, count)});
  if (status != Status::kOk) return status;
  for (size_t i = 0; i < half; ++i) {
    const double per_position = angle_of(i);
    for (size_t p = 0; p < positions; ++p) {
      const double angle = static_cast<double>(p) * per_position;
      cos[p * half + i] = static_cast<float>(length * std::cos(angle));
      sin[p * half + i] = static_cast<float>(length * std::sin(angle));
    }
  }
  return Status::kOk;
}

}  // namespace

Status RotaryTable(size_t positions, size_t head_dim, double theta, float* cos, float* sin) {
  if (head_dim == 0 || head_dim % 2 != 0) return Status::kInvalidShape;
  if (!std::isfinite(theta) || theta <= 0) return Status::kInvalidParameter;
  const auto angle_of = [&](size_t i) {
    return std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
  };
  return FillTable(positions, head_dim / 2, angle_of, 1.0, cos, sin);
}

Status RotaryTable(size_t positions, std::span<const double> angles, double length, float* cos,
                   float* sin) {
  if (angles.empty()) return Status::kInvalidShape;
  if (!std::isfinite(length) || length <= 0) return Status::kInvalidParameter;
  for (const double angle : angles) {
    if (!std::isfinite(angle)) return Status::kInvalidParameter;
  }
  return FillTable(
      positions, angles.size(), [&](size_t i) { return angles[i]; }, length, cos, sin);
}

template <typename T>
Status RotaryForward(const RotaryShape& shape, const float* cos, const float* sin, T* x) {
  return Rotate(shape, cos, sin, 1.0F, x);
}

template <typename T>
Status RotaryBackward(const RotaryShape& shape, const float* cos, const float* sin, T* dx) {
  return Rotate(shape, cos, sin, -1.0F, dx);
}

template Status RotaryForward(const RotaryShape&, const float*, const float*, float*);
template Status RotaryForward(const RotaryShape&, const float*, const float*, BFloat16*);
template Status RotaryBackward(const RotaryShape&, const float*, const float*, float*);
template Status RotaryBackward(const RotaryShape&, const float*, const float*, BFloat16*);

}  // namespace geminid::kernels
#endif  // HWY_ONCE
