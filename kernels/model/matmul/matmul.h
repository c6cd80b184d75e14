// Matrix product on the CPU: C[m,n] = op(A)[m,k] op(B)[k,n] (+ bias[n]) (+ C).
//
// Products are summed in fp32 and rounded to the element type of C once, after the bias and the
// old C were added. The bits of C depend on the shape, the element types and the CPU model, not on
// addresses, on the number of threads or on earlier calls.
#ifndef GEMINID_KERNELS_MODEL_MATMUL_MATMUL_H_
#define GEMINID_KERNELS_MODEL_MATMUL_MATMUL_H_

#include <cstddef>
#include <cstdint>

#include "kernels/runtime/common/bfloat16.h"
#include "kernels/runtime/common/status.h"
#include "kernels/runtime/parallel/thread_pool.h"

namespace geminid::kernels {

enum class Transpose : uint8_t { kNo, kYes };

// The shape of a product. Matrices are row-major. A row stride is in elements; 0 means dense.
struct MatmulShape {
  size_t m = 0;                            // rows of C
  size_t n = 0;                            // columns of C
  size_t k = 0;                            // length of the sums
  Transpose transpose_a = Transpose::kNo;  // kYes: A is stored as [k,m]
  Transpose transpose_b = Transpose::kNo;  // kYes: B is stored as [n,k]
  bool accumulate = false;                 // add the product to C instead of overwriting C
  bool bias = false;                       // add bias[n] to every row
  size_t a_stride = 0;
  size_t b_stride = 0;
  size_t c_stride = 0;

  friend bool operator==(const MatmulShape&, const MatmulShape&) = default;
};

// kNative multiplies the operands, but first copies blocks of fp32 operands with long rows. kWiden
// multiplies fp32 copies: A whole, B and C panel by panel. kAuto is kNative where the CPU has the
// instructions for In, else kWiden. Only tests choose; callers keep kAuto.
enum class MatmulPath : uint8_t { kAuto, kNative, kWiden };

// Bytes of workspace that Matmul needs for this shape on `threads` threads. The first call for
// a shape plans the product (about a millisecond). Each thread caches at most 64 plans and
// evicts the least recently used one. Errors: a dimension of 0, or one above 2^31 - 1; 0
// threads.
template <typename In, typename Out>
Status MatmulWorkspaceBytes(const MatmulShape& shape, size_t* workspace_bytes,
                            MatmulPath path = MatmulPath::kAuto, size_t threads = 1);

// Computes the product on the pool's threads, or on the calling one. `bias` is read only if
// shape.bias. `c` overlaps no input. `workspace` holds MatmulWorkspaceBytes bytes, 64-byte aligned,
// contents undefined before and after. Refused arguments leave C as it was.
// Instantiated for <BFloat16, BFloat16>, <BFloat16, float> and <float, float>.
template <typename In, typename Out>
Status Matmul(const MatmulShape& shape, const In* a, const In* b, const Out* bias, Out* c,
              void* workspace, size_t workspace_bytes, MatmulPath path = MatmulPath::kAuto,
              ThreadPool* pool = nullptr);

// Whether this processor has instructions that multiply bf16, and base::MaxIsa() allows them. If
// not, kAuto multiplies fp32 copies.
bool HasNativeBFloat16();

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_MATMUL_MATMUL_H_
