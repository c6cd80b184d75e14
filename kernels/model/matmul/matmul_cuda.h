#ifndef GEMINID_KERNELS_MODEL_MATMUL_MATMUL_CUDA_H_
#define GEMINID_KERNELS_MODEL_MATMUL_MATMUL_CUDA_H_

#include "kernels/model/matmul/matmul.h"
#include "kernels/runtime/common/status.h"
#include "kernels/runtime/cuda/stream.h"

namespace geminid::kernels {

// Matmul (kernels/model/matmul/matmul.h) on a GPU: C = scale op(A) op(B) (+ bias) (+ C). An element
// is one chain of fp32 multiply-adds over increasing k. Its bits depend on its row of op(A) and its
// column of op(B) alone, and are those of MatmulByRows if B is not transposed. Uses CUDA cores, not
// tensor cores, for products that no library supports. Instantiated as Matmul is.
template <typename In, typename Out>
Status MatmulCuda(const MatmulShape& shape, float scale, const In* a, const In* b, const Out* bias,
                  Out* c, CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_MATMUL_MATMUL_CUDA_H_
