// A matrix product whose rows do not depend on each other:
//
//   C[m,n] = A[m,k] op(B)[k,n] (+ bias[n]) (+ C)
//
// The bits of a row of C depend on that row of A, on B, n, k and the element types alone: not on m,
// on which row it is, or on threads. (Matmul's may: how it sums is chosen by the whole shape.) So a
// token gives the same numbers whether it is computed alone or among others, which is what makes
// generating with remembered keys and values the same as without.
//
// Sums are fp32 in a fixed order, rounded to the element type of C once, after the bias and the old
// C were added. B is read as it lies, once for every eight rows: made for few rows, and at some
// cost to many. T is float or BFloat16.
#ifndef GEMINID_KERNELS_MODEL_MATMUL_ROWS_H_
#define GEMINID_KERNELS_MODEL_MATMUL_ROWS_H_

#include "kernels/model/matmul/matmul.h"
#include "kernels/runtime/parallel/thread_pool.h"

namespace geminid::kernels {

// `shape` as for Matmul, without a transposed A. Needs no workspace. Works on the pool's threads,
// or on the calling one. Instantiated as Matmul is.
template <typename In, typename Out>
Status MatmulByRows(const MatmulShape& shape, const In* a, const In* b, const Out* bias, Out* c,
                    ThreadPool* pool = nullptr);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_MATMUL_ROWS_H_
