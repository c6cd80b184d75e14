// Matrix products on a GPU by cuBLASLt, which is loaded if it is there.
#ifndef GEMINID_KERNELS_MODEL_MATMUL_MATMUL_LIBRARY_CUDA_H_
#define GEMINID_KERNELS_MODEL_MATMUL_MATMUL_LIBRARY_CUDA_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "gpu/cublaslt_api.h"
#include "kernels/model/matmul/matmul.h"
#include "kernels/runtime/common/status.h"
#include "kernels/runtime/cuda/stream.h"

namespace geminid::kernels {

// C = scale op(A) op(B) (+ bias) (+ C). `bias` is read only if the shape says so.
template <typename In, typename Out>
struct MatmulOperands {
  float scale = 1;
  const In* a = nullptr;
  const In* b = nullptr;
  const Out* bias = nullptr;
  Out* c = nullptr;
};

// How one shape is multiplied: found once, and kept.
struct MatmulPlan {
  gpu::LtMatmul product = nullptr;
  // The library's matrices are column-major: its left factor is our B, its right one our A, and
  // its result our C, each transposed by being read so.
  gpu::LtLayout left = nullptr;
  gpu::LtLayout right = nullptr;
  gpu::LtLayout result = nullptr;
  gpu::LtAlgorithm algorithm = {};
  size_t workspace_bytes = 0;
  bool supported = false;
};

// The library and its plans, of one context and one thread.
//
// As Matmul (matmul.h), sums are fp32, on the matrix units for 16-bit types and without TF32 for
// fp32, and rounded once: algorithms that add partial sums in a narrower type are not allowed. The
// library chooses among the others by its version, the GPU, the shape and strides, and the
// alignment of the operands up to 16 bytes; and by nothing else, so that a shape has the same bits
// wherever its operands lie and whatever memory is free. Rows of one product may depend on how many
// there are: where that must not be, MatmulCuda is right.
class MatmulLibrary {
 public:
  // In the calling thread's current context, for a driver of that version. Null with `error` set
  // where there is no library, or it does not start.
  static std::unique_ptr<MatmulLibrary> Load(int driver_version, std::string* error);
  MatmulLibrary(const MatmulLibrary&) = delete;
  MatmulLibrary& operator=(const MatmulLibrary&) = delete;
  ~MatmulLibrary();  // what is queued has been waited for

  // The plan for a product, in `plan` until the library ends; MatmulCuda's errors. kUnsupported if
  // the library has no algorithm for it: that is kept, too, and MatmulCuda is for it.
  // Instantiated for <float, float> and, of BFloat16 and Float16, <T, T> and <T, float>.
  template <typename In, typename Out>
  Status Plan(const MatmulShape& shape, const MatmulOperands<In, Out>& operands,
              const MatmulPlan** plan);

  // Queues the product that `plan` was made for. `workspace` holds plan.workspace_bytes bytes of
  // the device, 64-byte aligned, which are free again when the stream has passed. kUnsupported if
  // it is refused, and then last_refusal() says why.
  template <typename In, typename Out>
  Status Run(const MatmulShape& shape, const MatmulPlan& plan,
             const MatmulOperands<In, Out>& operands, void* workspace, size_t workspace_bytes,
             CudaStream stream);
  const std::string& last_refusal() const { return refusal_; }

  // "cuBLASLt 13.1.0 (/usr/local/cuda/lib64/libcublasLt.so.13)".
  std::string Name() const;
  size_t shapes() const { return plans_.size(); }
  size_t unsupported_shapes() const;

 private:
  // A product as far as it matters for the choice.
  using Key = std::array<uint64_t, 16>;
  struct Question;

  MatmulLibrary(gpu::CublasLtApi api, gpu::LtHandle handle)
      : api_(std::move(api)), handle_(handle) {}
  bool Describe(const Question& question, MatmulPlan* plan);
  bool Choose(const Question& question, MatmulPlan* plan);
  void Forget(const MatmulPlan& plan);
  bool Took(gpu::LtStatus status, const char* call);

  const gpu::CublasLtApi api_;
  const gpu::LtHandle handle_;
  std::map<Key, MatmulPlan> plans_;
  std::string refusal_;
};

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_MATMUL_MATMUL_LIBRARY_CUDA_H_
