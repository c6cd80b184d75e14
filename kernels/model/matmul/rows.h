// A matrix product whose rows do not depend on each other:
//
//   C[m,n] = A[m,k] op(B)[k,n] (+ bias[n]) (+ C)
//
// The bits of a row of C depend only on that row of A, on B, n, k and the element types. They do
// not depend on m, on the row's index, or on threads. (Matmul chooses its sums by the whole shape,
// including m.)
//
// So a token has the same numbers alone and among others, and generation gives the same results
// with a KV cache and without one.
//
// Sums are fp32 in a fixed order, rounded to C's element type once, after the bias and the old C
// were added. B is read in place, once per eight rows of A (four without AVX-512). So few rows are
// fast, and many rows cost more than in Matmul. T is float or BFloat16.
#ifndef GEMINID_KERNELS_MODEL_MATMUL_ROWS_H_
#define GEMINID_KERNELS_MODEL_MATMUL_ROWS_H_

#include "kernels/model/matmul/matmul.h"
#include "kernels/runtime/parallel/thread_pool.h"

namespace geminid::kernels {

// `shape` as for Matmul, without a transposed A. Needs no workspace. Runs on the pool's threads, or
// on the calling thread. Instantiated as Matmul is.
template <typename In, typename Out>
Status MatmulByRows(const MatmulShape& shape, const In* a, const In* b, const Out* bias, Out* c,
                    ThreadPool* pool = nullptr);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_MATMUL_ROWS_H_
