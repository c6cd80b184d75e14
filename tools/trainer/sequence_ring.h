// Attention over sequences that are cut over several ranks: each rank has two chunks of every
// sequence (zigzag.h), and the keys and values of all go round (Ring Attention).
#ifndef GEMINID_TOOLS_TRAINER_SEQUENCE_RING_H_
#define GEMINID_TOOLS_TRAINER_SEQUENCE_RING_H_

#include <cstddef>
#include <map>
#include <tuple>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/sequence_parallel/ring_attention.h"
#include "geminid/communicator.h"
#include "kernels/model/attention/attention.h"
#include "kernels/runtime/parallel/thread_pool.h"
#include "tools/trainer/scratch.h"

namespace geminid::trainer {

// On the host, in fp32, whatever the model's type. Collectives of the ranks that share the
// sequences, which make the same calls.
class SequenceRing {
 public:
  // `ranks` and `threads`, which may be null, outlive it.
  SequenceRing(collectives::Communicator* ranks, kernels::ThreadPool* threads)
      : ranks_(ranks), threads_(threads) {}

  // As KernelsOf's of these names; `mine` is of this rank's tokens, and all matrices are dense.
  template <typename T>
  absl::Status AttentionForward(const Resources& resources, const kernels::AttentionShape& mine,
                                Matrix<const T> q, Matrix<const T> k, Matrix<const T> v,
                                Matrix<T> out, float* lse);
  template <typename T>
  absl::Status AttentionBackward(const Resources& resources, const kernels::AttentionShape& mine,
                                 const kernels::AttentionSaved<T>& saved, Matrix<T> dq,
                                 Matrix<T> dk, Matrix<T> dv);

 private:
  absl::StatusOr<collectives::RingAttention*> RingOf(const kernels::AttentionShape& mine);

  using Key = std::tuple<size_t, size_t, size_t, size_t, size_t>;
  collectives::Communicator* const ranks_;
  kernels::ThreadPool* const threads_;
  std::map<Key, collectives::RingAttention> rings_;  // by shape: few, with buffers each
};

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_SEQUENCE_RING_H_
