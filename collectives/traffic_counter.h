// Counts the traffic of a communicator's operations, and adds it to the communicator it came from.
#ifndef GEMINID_COLLECTIVES_TRAFFIC_COUNTER_H_
#define GEMINID_COLLECTIVES_TRAFFIC_COUNTER_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "geminid/communicator.h"

namespace geminid::collectives {

// Thread-safe, except CountFor, which comes first.
class TrafficCounter {
 public:
  explicit TrafficCounter(int world_size);

  // Traffic counted here also counts in `other`, by the ranks that `ranks` maps ours to. Null: no.
  void CountFor(std::shared_ptr<TrafficCounter> other, std::span<const int> ranks);
  // From now on this counts where `other` did, which has the same ranks; `other` no longer does.
  void TakeOver(TrafficCounter& other);

  void Sent(OpKind kind, int peer, uint64_t bytes);
  void Received(OpKind kind, int peer, uint64_t bytes);
  void ReceivedOverNetwork(OpKind kind, uint64_t bytes);
  void Completed(OpKind kind, int64_t nanoseconds);

  std::array<OperationTraffic, kOpKindCount> Read() const;

 private:
  struct Cell {
    std::atomic<uint64_t> sent{0};
    std::atomic<uint64_t> received{0};
  };
  struct CompletedCalls {
    std::atomic<uint64_t> calls{0};
    std::atomic<int64_t> nanoseconds{0};
    std::atomic<uint64_t> network_received{0};
  };
  Cell& At(OpKind kind, int peer) {
    return cells_[static_cast<size_t>(kind) * world_size_ + static_cast<size_t>(peer)];
  }

  const size_t world_size_;
  std::vector<Cell> cells_;  // by kind and rank
  std::array<CompletedCalls, kOpKindCount> done_ = {};
  std::shared_ptr<TrafficCounter> other_;
  std::vector<int> ranks_;  // in other_
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_TRAFFIC_COUNTER_H_
