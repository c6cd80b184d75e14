#ifndef GEMINID_KERNELS_NUMERIC_REDUCE_ROWS_REDUCE_ROWS_CUDA_H_
#define GEMINID_KERNELS_NUMERIC_REDUCE_ROWS_REDUCE_ROWS_CUDA_H_

#include <cstddef>
#include <cstdint>

#include "kernels/runtime/common/status.h"
#include "kernels/runtime/cuda/stream.h"

namespace geminid::kernels {

enum class RowReduction : uint8_t { kSum, kMin, kMax };

// out[i] = round(scale (row 0[i] op row 1[i] op ...)) on a GPU, from left to right, over `rows`
// rows of `count` elements that lie one behind the other: ReduceInOrder (collectives/reduce.h) with
// the bits of the host, except those of a NaN. fp32 for the 16- and 32-bit formats, fp64 for
// double; integers wrap. `scale` must be 1 except for sums of floats. `out` may be a row of
// `inputs`. Instantiated for float, BFloat16, Float16, double, int32_t, int64_t and uint8_t.
template <typename T>
Status ReduceRowsCuda(const T* inputs, size_t rows, size_t count, RowReduction reduction,
                      double scale, T* out, CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_NUMERIC_REDUCE_ROWS_REDUCE_ROWS_CUDA_H_
