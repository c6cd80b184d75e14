// Attention in bf16 on a GPU with cuDNN, if cuDNN passes its test.
#ifndef GEMINID_TRAINING_NN_GPU_ATTENTION_H_
#define GEMINID_TRAINING_NN_GPU_ATTENTION_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/model/attention/attention_library_cuda.h"
#include "training/nn/gpu_queue.h"
#include "training/nn/scratch.h"

namespace geminid::trainer {

class GpuAttention {
 public:
  using Element = kernels::BFloat16;
  using Read = kernels::HeadsView<const Element>;
  using Written = kernels::HeadsView<Element>;

  // `library` is nullable. `queue` and `library` outlive this object.
  GpuAttention(GpuQueue* queue, kernels::AttentionLibrary* library)
      : queue_(*queue), library_(library) {}

  // The library's plan for a shape, tested on its first use; null: use the project's own kernel.
  absl::StatusOr<kernels::AttentionPlan*> PlanFor(const Resources& resources,
                                                  const kernels::AttentionShape& shape) const;

  // Queue a pass. False: nothing was queued, and the caller must use the project's own kernel.
  absl::StatusOr<bool> Forward(const Resources& resources, const kernels::AttentionShape& shape,
                               const Read& q, const Read& k, const Read& v, const Written& out,
                               float* lse) const;
  absl::StatusOr<bool> Backward(const Resources& resources, const kernels::AttentionShape& shape,
                                const kernels::AttentionSaved<Element>& saved, const Written& dq,
                                const Written& dk, const Written& dv) const;

 private:
  absl::Status Passed(kernels::Status status) const;

  GpuQueue& queue_;
  kernels::AttentionLibrary* const library_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_NN_GPU_ATTENTION_H_
