// One rank's view of the ranks that share sequences: how its attention reaches the tokens of the
// other ranks.
#ifndef GEMINID_TRAINING_ENGINES_SEQUENCE_RANKS_H_
#define GEMINID_TRAINING_ENGINES_SEQUENCE_RANKS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/device/device.h"
#include "geminid/communicator.h"
#include "kernels/runtime/parallel/thread_pool.h"
#include "training/nn/blocks.h"
#include "training/nn/gpu_queue.h"
#include "training/nn/parallel/memory.h"
#include "training/nn/parallel/sequence/sequence_parallel_attention.h"
#include "training/nn/parallel/sequence/ulysses_exchange.h"
#include "training/nn/sequence_ring.h"
#include "training/settings/parallel.h"

namespace geminid::trainer {

class SequenceRanks {
 public:
  SequenceRanks() = default;  // sequences are whole

  // How a rank computes: on the GPU of `queue`, or if that is null on the host, on `threads`, which
  // may be null. What GPUs exchange passes through `memory`, of the host, unless the exchange goes
  // from GPU to GPU. All outlive this object.
  struct Place {
    kernels::ThreadPool* threads;
    GpuQueue* queue;
    device::Device* device;  // of the queue's GPU
    collectives::Memory& memory;
  };
  // Connects as `parallel` says. A collective of `ranks`.
  static absl::StatusOr<SequenceRanks> Connect(std::unique_ptr<collectives::Communicator> ranks,
                                               const Parallel& parallel, const Place& place);

  // For whole layers, and for the shards of layers in 1D.
  SequenceExchange Cut(collectives::Memory* memory) const {
    return {.swap = swap_.get(), .ring = ring_.get(), .memory = memory};
  }
  // What carries the keys and values of a ring between GPUs, and why if that is host memory. Empty:
  // there is no ring, or the host computes.
  const std::string& keys_travel_by() const { return keys_travel_by_; }
  // For the layers of a grid; null: sequences are whole.
  collectives::SequenceParallelAttention* attention() const {
    return ring_ != nullptr ? &ring_->attention() : heads_.get();
  }

 private:
  // Of all but a host's ring, which has its own.
  std::unique_ptr<collectives::Communicator> ranks_;
  std::string keys_travel_by_;
  // If sequences are shared, one of the three is set.
  std::unique_ptr<collectives::UlyssesExchange> swap_;
  std::unique_ptr<SequenceRing> ring_;
  std::unique_ptr<collectives::SequenceParallelAttention> heads_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_ENGINES_SEQUENCE_RANKS_H_
