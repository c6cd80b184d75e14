// Attention in bf16 on a GPU by cuDNN, if cuDNN has passed its test.
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

  // `library` is nullable. Both outlive it.
  GpuAttention(GpuQueue* queue, kernels::AttentionLibrary* library)
      : queue_(*queue), library_(library) {}

  // The library's plan for a shape, tested if it is new; null: the kernel of our own is for it.
  absl::StatusOr<kernels::AttentionPlan*> PlanFor(const Resources& resources,
                                                  const kernels::AttentionShape& shape) const;

  // Queue a pass. False: the kernel of our own is for it, and nothing was queued.
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
