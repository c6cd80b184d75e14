#ifndef GEMINID_KERNELS_NUMERIC_NORM_CAST_NORM_H_
#define GEMINID_KERNELS_NUMERIC_NORM_CAST_NORM_H_

#include <cstddef>

#include "kernels/numeric/norm/norm.h"
#include "kernels/runtime/common/bfloat16.h"
#include "kernels/runtime/common/float16.h"
#include "kernels/runtime/common/status.h"

// A conversion (kernels/numeric/cast), and the norm and overflow check of its output
// (kernels/numeric/norm), in one pass over memory: 6 bytes of traffic per element instead of 8 or
// 10.
//
// The squares are those of the values written, so a value that is finite in fp32 but overflows in
// fp16 is found. *total has the bits of AddSquares on the output: the same order, blocks and lanes.
// They are the same on every instruction set, and for calls that cut the array at multiples of
// kNormTree. Input and output are disjoint; element alignment suffices; any thread, no allocation,
// never blocks. Outputs that are aligned to 64 bytes and larger than a second-level cache may be
// stored past the caches; they are globally visible on return.
namespace geminid::kernels {

Status CastToBFloat16AndAddSquares(const float* input, size_t count, BFloat16* output,
                                   SquareSum* total);
Status CastToFloat16AndAddSquares(const float* input, size_t count, Float16* output,
                                  SquareSum* total);
Status CastToFloatAndAddSquares(const BFloat16* input, size_t count, float* output,
                                SquareSum* total);
Status CastToFloatAndAddSquares(const Float16* input, size_t count, float* output,
                                SquareSum* total);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_NUMERIC_NORM_CAST_NORM_H_
