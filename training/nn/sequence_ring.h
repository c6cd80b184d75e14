// Attention over sequences that are partitioned over ranks (Ring Attention). Each rank has two
// chunks of every sequence (training/nn/parallel/sequence/zigzag.h). The keys and values of all
// chunks travel from rank to rank.
#ifndef GEMINID_TRAINING_NN_SEQUENCE_RING_H_
#define GEMINID_TRAINING_NN_SEQUENCE_RING_H_

#include <cstddef>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "geminid/async_communicator.h"
#include "geminid/communicator.h"
#include "kernels/model/attention/attention.h"
#include "kernels/runtime/parallel/thread_pool.h"
#include "training/nn/parallel/sequence/piece_attention.h"
#include "training/nn/scratch.h"

namespace geminid::trainer {

// Runs on the host in fp32, whatever the model's type. The methods are collectives: the ranks that
// share the sequences make the same calls.
class SequenceRing {
 public:
  // `threads` may be null; it outlives this object. RESOURCE_EXHAUSTED: no thread can be started.
  static absl::StatusOr<std::unique_ptr<SequenceRing>> Create(
      std::unique_ptr<collectives::Communicator> ranks, kernels::ThreadPool* threads);

  // The same attention, for layers that are sharded, too.
  collectives::PieceAttention& attention() { return *attention_; }

  // Like the methods of KernelsOf; `mine` has this rank's tokens, and all matrices are dense.
  template <typename T>
  absl::Status AttentionForward(const Resources& resources, const kernels::AttentionShape& mine,
                                Matrix<const T> q, Matrix<const T> k, Matrix<const T> v,
                                Matrix<T> out, float* lse);
  template <typename T>
  absl::Status AttentionBackward(const Resources& resources, const kernels::AttentionShape& mine,
                                 const kernels::AttentionSaved<T>& saved, Matrix<T> dq,
                                 Matrix<T> dk, Matrix<T> dv);

 private:
  SequenceRing(std::unique_ptr<collectives::AsyncCommunicator> ranks, kernels::ThreadPool* threads)
      : ranks_(std::move(ranks)), attention_(collectives::MakeRingOfPieces(*ranks_, threads)) {}

  const std::unique_ptr<collectives::AsyncCommunicator> ranks_;
  const std::unique_ptr<collectives::PieceAttention> attention_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_NN_SEQUENCE_RING_H_
