// Transposes an fp32 matrix. Internal to matmul.
#ifndef GEMINID_KERNELS_MODEL_MATMUL_TRANSPOSE_H_
#define GEMINID_KERNELS_MODEL_MATMUL_TRANSPOSE_H_

#include "kernels/model/matmul/checks.h"

namespace geminid::kernels {

// Writes column c of `from` as row c of `to`, whose rows are `to_stride` elements apart.
void TransposeFloats(const MatrixStorage& storage, const float* from, float* to, size_t to_stride);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_MATMUL_TRANSPOSE_H_
