// Transposes a dense matrix, and rounds it if the types differ.
#ifndef GEMINID_KERNELS_MODEL_ELEMENTWISE_TRANSPOSE_H_
#define GEMINID_KERNELS_MODEL_ELEMENTWISE_TRANSPOSE_H_

#include <cstddef>

#include "kernels/runtime/common/bfloat16.h"
#include "kernels/runtime/common/status.h"

namespace geminid::kernels {

// to[cols,rows] = the transpose of from[rows,cols]. From and To are both float, both BFloat16, or
// float and BFloat16. The matrices are disjoint.
template <typename From, typename To>
Status TransposeMatrix(size_t rows, size_t cols, const From* from, To* to);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_ELEMENTWISE_TRANSPOSE_H_
