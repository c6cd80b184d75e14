#ifndef GEMINID_KERNELS_NUMERIC_CAST_CAST_H_
#define GEMINID_KERNELS_NUMERIC_CAST_CAST_H_

#include <cstddef>

#include "kernels/runtime/common/bfloat16.h"
#include "kernels/runtime/common/float16.h"
#include "kernels/runtime/common/status.h"

// Conversions of arrays. Each element is converted as by FromFloat (nearest, ties to even, NaN made
// quiet) or ToFloat (exact) of the 16-bit type. Input and output are disjoint; element alignment
// suffices; any thread, no allocation, never blocks. 6 bytes of traffic per element.
namespace geminid::kernels {

Status CastToBFloat16(const float* input, size_t count, BFloat16* output);
Status CastToFloat(const BFloat16* input, size_t count, float* output);
Status CastToFloat16(const float* input, size_t count, Float16* output);
Status CastToFloat(const Float16* input, size_t count, float* output);

// The same for a matrix: `rows` rows of `cols` elements, which begin a stride of at least `cols`
// elements apart. Elements between rows stay as they are.
struct CastRows {
  size_t rows = 0;
  size_t cols = 0;
  size_t input_stride = 0;
  size_t output_stride = 0;
};
Status CastRowsToBFloat16(const CastRows& shape, const float* input, BFloat16* output);
Status CastRowsToFloat(const CastRows& shape, const BFloat16* input, float* output);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_NUMERIC_CAST_CAST_H_
