// Attention on a GPU by cuDNN, which is loaded if it is there and taken for shapes that it passes a
// test at.
#ifndef GEMINID_KERNELS_MODEL_ATTENTION_ATTENTION_LIBRARY_CUDA_H_
#define GEMINID_KERNELS_MODEL_ATTENTION_ATTENTION_LIBRARY_CUDA_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "gpu/cudnn_api.h"
#include "kernels/model/attention/attention.h"
#include "kernels/model/attention/attention_parts.h"
#include "kernels/runtime/common/status.h"
#include "kernels/runtime/cuda/dnn_graph.h"
#include "kernels/runtime/cuda/stream.h"

namespace geminid::kernels {

// How far a library's results are from those of the kernel of our own: the root of the mean square
// of the difference over that of the values, the worst of all blocks of 64 tokens of a head.
struct AttentionDistances {
  double out = 0;
  double dq = 0;
  double dk = 0;
  double dv = 0;
  double lse = 0;  // the largest difference
};

// How attention of one shape is computed: found once, and kept.
struct AttentionPlan {
  enum class State { kUntested, kTaken, kRefused };

  AttentionParts parts;
  std::unique_ptr<DnnGraph> forward;
  std::unique_ptr<DnnGraph> backward;
  size_t forward_bytes = 0;   // of workspace, wherever it begins
  size_t backward_bytes = 0;  // with room for sums of rows
  size_t test_bytes = 0;      // with either
  State state = State::kRefused;
  std::string why;  // of kRefused
  AttentionDistances distances;
};

// The library and its plans, of one context and one thread.
//
// What it computes is attention.h's, of bf16, causal, from the first query on, with q, k, v, out
// and gradients dense. Sums are fp32; chances and the gradients of scores are rounded to bf16
// before they are multiplied. The same bits on every run: engines that say that they are not
// deterministic are not taken, and the test repeats each pass. The choice is made from the shape,
// the library's version and the GPU, and from nothing else.
class AttentionLibrary {
 public:
  // In the calling thread's current context. Null with `error` set where there is no library, or it
  // does not start.
  static std::unique_ptr<AttentionLibrary> Load(std::string* error);
  AttentionLibrary(const AttentionLibrary&) = delete;
  AttentionLibrary& operator=(const AttentionLibrary&) = delete;
  ~AttentionLibrary();  // what is queued has been waited for

  // The plan for a shape, until the library ends. In state kUntested at first, which Test ends.
  AttentionPlan& Plan(const AttentionShape& shape);
  // One in parts that are given. False with plan.why set.
  bool PlanParts(const AttentionShape& shape, const AttentionParts& parts,
                 AttentionPlan& plan) const;

  // Computes one part of the shape with numbers of its own by the library, ten times, and once by
  // the kernel of our own: the plan is taken if all ten have the same bits, and none is farther
  // from ours than rounding to bf16 explains. `workspace` holds plan.test_bytes bytes of the
  // device. Waits for the stream. kUnsupported, with `why` set, only where the device itself fails;
  // a library that fails is refused.
  Status Test(const AttentionShape& shape, AttentionPlan& plan, void* workspace, CudaStream stream,
              std::string* why);

  // Queue a pass of a plan that is taken. Arguments as of AttentionForwardCuda and
  // AttentionBackwardCuda, each 16-byte aligned; `workspace` holds plan.forward_bytes
  // or plan.backward_bytes bytes of the device. kUnsupported if the library refuses, and then
  // last_refusal() says why.
  Status Forward(const AttentionShape& shape, AttentionPlan& plan, const BFloat16* q,
                 const BFloat16* k, const BFloat16* v, BFloat16* out, float* lse, void* workspace,
                 CudaStream stream);
  struct Gradients {
    BFloat16* dq = nullptr;
    BFloat16* dk = nullptr;
    BFloat16* dv = nullptr;
  };
  Status Backward(const AttentionShape& shape, AttentionPlan& plan,
                  const AttentionSaved<BFloat16>& saved, const Gradients& gradients,
                  void* workspace, CudaStream stream);
  const std::string& last_refusal() const { return refusal_; }

  // "cuDNN 9.19.0 (/usr/local/cuda/lib64/libcudnn.so.9)".
  std::string Name() const;
  // What is known of shapes so far: "cuDNN ...", and for each that is refused why.
  std::string Describe() const;

 private:
  // A shape as far as it matters for the choice.
  using Key = std::array<uint64_t, 8>;

  AttentionLibrary(gpu::CudnnApi api, gpu::DnnHandle handle)
      : api_(std::move(api)), handle_(handle) {}
  bool Prepare(const AttentionShape& shape, AttentionPlan& plan) const;

  const gpu::CudnnApi api_;
  const gpu::DnnHandle handle_;
  std::map<Key, AttentionPlan> plans_;
  std::string refusal_;
};

// Whether the views are dense and 16-byte aligned, as the library takes them.
template <typename T>
bool IsDense(const HeadsView<T>& view, size_t heads, size_t head_dim) {
  constexpr uintptr_t kAlignment = 16;
  return view.token_stride == heads * head_dim &&
         reinterpret_cast<uintptr_t>(view.data) % kAlignment == 0;
}

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_ATTENTION_ATTENTION_LIBRARY_CUDA_H_
