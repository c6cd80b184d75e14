// Attention over sequences that are partitioned over ranks (Ring Attention). Each rank has two
// chunks of every sequence (training/nn/parallel/sequence/zigzag.h). The keys and values of all
// chunks travel from rank to rank.
#ifndef GEMINID_TRAINING_NN_SEQUENCE_RING_H_
#define GEMINID_TRAINING_NN_SEQUENCE_RING_H_

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "geminid/communicator.h"
#include "kernels/model/attention/attention.h"
#include "kernels/runtime/parallel/thread_pool.h"
#include "training/nn/gpu_queue.h"
#include "training/nn/parallel/memory.h"
#include "training/nn/parallel/sequence/sequence_parallel_attention.h"
#include "training/nn/scratch.h"

namespace geminid::trainer {

// Runs in fp32, whatever the model's type. The methods are collectives: the ranks that share the
// sequences make the same calls.
class SequenceRing {
 public:
  // On the host. `threads` may be null; it outlives this object. RESOURCE_EXHAUSTED: no thread can
  // be started.
  static absl::StatusOr<std::unique_ptr<SequenceRing>> Create(
      std::unique_ptr<collectives::Communicator> ranks, kernels::ThreadPool* threads);
  // On the GPU of `queue`; `devices` and `memory` are those of GpuAxisRanks. Keys and values do not
  // travel while the GPU computes. `ranks`, `queue` and `memory` outlive the ring.
  static std::unique_ptr<SequenceRing> OnGpu(collectives::Communicator& ranks,
                                             std::unique_ptr<collectives::Communicator> devices,
                                             GpuQueue& queue, collectives::Memory& memory);
  virtual ~SequenceRing() = default;

  // The same attention, for layers that are sharded, too.
  collectives::SequenceParallelAttention& attention() { return *attention_; }

  // Like the methods of KernelsOf; `mine` has this rank's tokens, and all matrices are dense.
  template <typename T>
  absl::Status AttentionForward(const Resources& resources, const kernels::AttentionShape& mine,
                                Matrix<const T> q, Matrix<const T> k, Matrix<const T> v,
                                Matrix<T> out, float* lse);
  template <typename T>
  absl::Status AttentionBackward(const Resources& resources, const kernels::AttentionShape& mine,
                                 const kernels::AttentionSaved<T>& saved, Matrix<T> dq,
                                 Matrix<T> dk, Matrix<T> dv);

 protected:
  explicit SequenceRing(std::unique_ptr<collectives::RingRanks> ranks)
      : ranks_(std::move(ranks)), attention_(collectives::MakeRingSequenceAttention(*ranks_)) {}

 private:
  // The arithmetic, whose workspaces come from `resources` or from `memory`, which is the same.
  virtual std::unique_ptr<collectives::LayerMath> MathOf(const Resources& resources,
                                                         collectives::Memory& memory) const = 0;

  const std::unique_ptr<collectives::RingRanks> ranks_;
  const std::unique_ptr<collectives::SequenceParallelAttention> attention_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_NN_SEQUENCE_RING_H_
