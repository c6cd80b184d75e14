#ifndef GEMINID_KERNELS_NUMERIC_ACCUMULATE_ACCUMULATE_H_
#define GEMINID_KERNELS_NUMERIC_ACCUMULATE_ACCUMULATE_H_

#include <cstddef>

#include "kernels/runtime/common/bfloat16.h"
#include "kernels/runtime/common/status.h"

// Gradient accumulation: accumulator[i] += scale * gradient[i], in fp32 with two roundings
// (product, then sum). So the bits do not depend on the instruction set or on how the arrays are
// cut into calls. Every NaN written is 0x7FC00000. `scale` is finite, else kInvalidParameter. The
// arrays are disjoint; element alignment suffices; any thread, no allocation, never blocks.
namespace geminid::kernels {

Status Accumulate(const BFloat16* gradient, float scale, size_t count, float* accumulator);
Status Accumulate(const float* gradient, float scale, size_t count, float* accumulator);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_NUMERIC_ACCUMULATE_ACCUMULATE_H_
