// Matrix products on a GPU by cuBLASLt, which is loaded at run time if it is installed.
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

// How one shape is multiplied; found once and cached.
struct MatmulPlan {
  gpu::LtMatmul product = nullptr;
  // The library's matrices are column-major, so it reads our row-major B, A and C as their
  // transposes: B is its left factor, A its right one, and C its result.
  gpu::LtLayout left = nullptr;
  gpu::LtLayout right = nullptr;
  gpu::LtLayout result = nullptr;
  gpu::LtAlgorithm algorithm = {};
  size_t workspace_bytes = 0;
  bool supported = false;
};

// The library and its plans, for one context and one thread.
//
// As in Matmul (matmul.h), sums are fp32 and rounded once. 16-bit types use tensor cores; fp32 does
// not use TF32. Algorithms that add partial sums in a narrower type are not allowed. The library's
// choice among the others depends only on its version, the GPU, the shape, the strides and the
// operands' alignment up to 16 bytes. So a shape has the same bits at every address and with every
// amount of free memory. A row's bits may depend on the number of rows; if they must not, use
// MatmulCuda.
class MatmulLibrary {
 public:
  // Loads the library in the calling thread's current context, for a driver of `driver_version`.
  // Null, with `error` set, if there is no library or it does not start.
  static std::unique_ptr<MatmulLibrary> Load(int driver_version, std::string* error);
  MatmulLibrary(const MatmulLibrary&) = delete;
  MatmulLibrary& operator=(const MatmulLibrary&) = delete;
  ~MatmulLibrary();  // the caller has waited for all queued work

  // Finds the plan for a product; *plan is valid until this object ends. Errors as MatmulCuda.
  // kUnsupported, which is cached too, if the library has no algorithm: then use MatmulCuda.
  // Instantiated for <float, float>, <BFloat16, BFloat16> and <BFloat16, float>.
  template <typename In, typename Out>
  Status Plan(const MatmulShape& shape, const MatmulOperands<In, Out>& operands,
              const MatmulPlan** plan);

  // Queues the product that `plan` was made for. `workspace` holds plan.workspace_bytes bytes of
  // device memory, 64-byte aligned, which are free again once the stream has run the product.
  // kUnsupported if the library refuses the product; last_refusal() then says why.
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
  // The properties of a product that determine its plan.
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
