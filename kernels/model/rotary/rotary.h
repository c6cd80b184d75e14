// Rotary position embedding (arXiv:2104.09864) in the half-split convention of Hugging Face LLaMA:
// with h = head_dim/2 and angle(p,i) = p theta^(-2i/head_dim),
//
//   y[i]   = x[i] cos - x[i+h] sin
//   y[i+h] = x[i+h] cos + x[i] sin,  0 <= i < h
//
// The backward pass rotates by the opposite angle, with the same table. Heads may be wider than
// head_dim: elements beyond head_dim stay as they are (GPT-NeoX). T is float or BFloat16.
#ifndef GEMINID_KERNELS_MODEL_ROTARY_ROTARY_H_
#define GEMINID_KERNELS_MODEL_ROTARY_ROTARY_H_

#include <cstddef>
#include <span>

#include "kernels/runtime/common/bfloat16.h"
#include "kernels/runtime/common/status.h"

namespace geminid::kernels {

// Fills cos[positions, head_dim/2] and sin[..] in float64, rounded once. theta is 10000 in LLaMA 2.
// head_dim is even.
Status RotaryTable(size_t positions, size_t head_dim, double theta, float* cos, float* sin);

// The tables of scaled positions (training/models/rotary_scaling.h): angle(p,i) = p angles[i] with
// head_dim/2 angles. Cosines and sines are multiplied by `length`, which is positive.
Status RotaryTable(size_t positions, std::span<const double> angles, double length, float* cos,
                   float* sin);

struct RotaryShape {
  size_t batch = 0;
  size_t sequence = 0;  // token t of a batch entry has position first_position + t
  size_t heads = 0;
  size_t head_dim = 0;      // elements of a head that are rotated; even
  size_t token_stride = 0;  // elements between tokens
  size_t first_position = 0;
  size_t head_stride = 0;  // elements between the heads of a token; 0: head_dim

  size_t HeadStride() const { return head_stride == 0 ? head_dim : head_stride; }
};

// Rotates x[batch*sequence, heads, head_dim] in place. The tables hold at least first_position +
// sequence positions.
template <typename T>
Status RotaryForward(const RotaryShape& shape, const float* cos, const float* sin, T* x);

// Turns the gradient of the rotated tensor into the gradient of the input, in place.
template <typename T>
Status RotaryBackward(const RotaryShape& shape, const float* cos, const float* sin, T* dx);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_ROTARY_ROTARY_H_
