#ifndef GEMINID_KERNELS_MODEL_MATMUL_MATMUL_CUDA_H_
#define GEMINID_KERNELS_MODEL_MATMUL_MATMUL_CUDA_H_

#include "kernels/model/matmul/matmul.h"
#include "kernels/runtime/common/status.h"
#include "kernels/runtime/cuda/stream.h"

namespace geminid::kernels {

// C = scale op(A) op(B) (+ bias) (+ C) on a GPU: kernels/model/matmul/matmul.h, but that every
// element is one chain of fp32 multiply-adds over increasing k. So its bits depend on its row of
// op(A) and its column of op(B) alone, and are those of MatmulByRows where B is not transposed. On
// the general cores, not the matrix units: for where no library has it. Instantiated as Matmul is.
template <typename In, typename Out>
Status MatmulCuda(const MatmulShape& shape, float scale, const In* a, const In* b, const Out* bias,
                  Out* c, CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_MATMUL_MATMUL_CUDA_H_
