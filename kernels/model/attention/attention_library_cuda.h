// Attention on a GPU with cuDNN. The library is loaded if it is installed, and used for the shapes
// at which it passes a test.
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

// The distances of a library's results from those of the project's own kernel: the root of the mean
// square of the difference, divided by that of the values. Each is the worst of all blocks of 64
// tokens of a head.
struct AttentionDistances {
  double out = 0;
  double dq = 0;
  double dk = 0;
  double dv = 0;
  double lse = 0;  // the largest difference
};

// The way to compute attention of one shape; found once and cached.
struct AttentionPlan {
  enum class State { kUntested, kTaken, kRefused };

  AttentionParts parts;
  std::unique_ptr<DnnGraph> forward;
  std::unique_ptr<DnnGraph> backward;
  size_t forward_bytes = 0;   // of workspace, at any address
  size_t backward_bytes = 0;  // with memory for the sums of rows
  size_t test_bytes = 0;      // with the larger of both
  State state = State::kRefused;
  std::string why;  // for kRefused
  AttentionDistances distances;
};

// The library and its plans, for one context and one thread.
//
// Computes attention.h for bf16, causal, with first_query 0 and dense q, k, v, out and gradients.
// Sums are fp32. Probabilities and the gradients of scores are rounded to bf16 before they are
// multiplied. The bits are the same on every run: engines that report themselves as not
// deterministic are refused, and the test repeats each pass. The choice depends only on the shape,
// the library's version and the GPU.
class AttentionLibrary {
 public:
  // Loads the library in the calling thread's current context. Null, with `error` set, if there is
  // no library or it does not start.
  static std::unique_ptr<AttentionLibrary> Load(std::string* error);
  AttentionLibrary(const AttentionLibrary&) = delete;
  AttentionLibrary& operator=(const AttentionLibrary&) = delete;
  ~AttentionLibrary();  // the caller has waited for all queued work

  // The plan for a shape, valid until the library ends. Its state is kUntested until Test runs.
  AttentionPlan& Plan(const AttentionShape& shape);
  // Plans with the given parts. False, with plan.why set, if that fails.
  bool PlanParts(const AttentionShape& shape, const AttentionParts& parts,
                 AttentionPlan& plan) const;

  // Computes one part of the shape, with test data, ten times with the library and once with the
  // project's own kernel. The plan is taken if all ten results have the same bits, and if their
  // distance from the own kernel's result is no larger than rounding to bf16 explains. `workspace`
  // holds plan.test_bytes bytes of device memory. Waits for the stream. kUnsupported, with `why`
  // set, only if the device itself fails; a library that fails is refused.
  Status Test(const AttentionShape& shape, AttentionPlan& plan, void* workspace, CudaStream stream,
              std::string* why);

  // Queue a pass of a taken plan. Arguments are those of AttentionForwardCuda and
  // AttentionBackwardCuda, each 16-byte aligned. `workspace` holds plan.forward_bytes or
  // plan.backward_bytes bytes of device memory. kUnsupported if the library refuses; last_refusal()
  // then says why.
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
  // The known shapes: "cuDNN ...", and for each refused shape the reason.
  std::string Describe() const;

 private:
  // The properties of a shape that determine the choice.
  using Key = std::array<uint64_t, 8>;

  AttentionLibrary(gpu::CudnnApi api, gpu::DnnHandle handle)
      : api_(std::move(api)), handle_(handle) {}
  bool Prepare(const AttentionShape& shape, AttentionPlan& plan) const;

  const gpu::CudnnApi api_;
  const gpu::DnnHandle handle_;
  std::map<Key, AttentionPlan> plans_;
  std::string refusal_;
};

// Whether the views are dense and 16-byte aligned, as the library requires.
template <typename T>
bool IsDense(const HeadsView<T>& view, size_t heads, size_t head_dim) {
  constexpr uintptr_t kAlignment = 16;
  return view.token_stride == heads * head_dim &&
         reinterpret_cast<uintptr_t>(view.data) % kAlignment == 0;
}

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_ATTENTION_ATTENTION_LIBRARY_CUDA_H_
