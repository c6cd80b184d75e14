// The only reduction; all backends use it, so that all give the same bits.
#ifndef GEMINID_COLLECTIVES_REDUCE_H_
#define GEMINID_COLLECTIVES_REDUCE_H_

#include <cstddef>
#include <span>

#include "geminid/buffer.h"

namespace geminid::collectives {

// out[i] = round(scale * (inputs[0][i] op inputs[1][i] op ...)), from left to right, for `count`
// elements. float32, bfloat16 and float16 are computed in fp32 and rounded once to nearest even,
// float64 in fp64, integers modulo 2^n. `scale` must be 1 for integers, kMin and kMax.
// `out` may be one of the inputs; otherwise buffers must not overlap. No alignment is required.
// Cost: one pass, near the speed of memory for all types with AVX2 and AVX-512.
void ReduceInOrder(std::span<const std::byte* const> inputs, std::byte* out, size_t count,
                   DType dtype, ReduceOp op, double scale);

// Convert bfloat16 or float16 to fp32 exactly, and back with the rounding of a reduction's result.
// So a reduction in several parts has the bits of one in a single pass.
void WidenToFloat(const std::byte* in, float* out, size_t count, DType dtype);
void NarrowFromFloat(const float* in, std::byte* out, size_t count, DType dtype);

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_REDUCE_H_
