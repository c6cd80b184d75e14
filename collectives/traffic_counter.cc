#include "collectives/traffic_counter.h"

#include <utility>

namespace geminid::collectives {

TrafficCounter::TrafficCounter(int world_size)
    : world_size_(static_cast<size_t>(world_size)), cells_(world_size_ * kOpKindCount) {}

void TrafficCounter::CountFor(std::shared_ptr<TrafficCounter> other, std::span<const int> ranks) {
  other_ = std::move(other);
  ranks_.assign(ranks.begin(), ranks.end());
}

void TrafficCounter::TakeOver(TrafficCounter& other) {
  other_ = std::exchange(other.other_, nullptr);
  ranks_ = std::exchange(other.ranks_, {});
}

void TrafficCounter::Sent(OpKind kind, int peer, uint64_t bytes) {
  At(kind, peer).sent.fetch_add(bytes, std::memory_order_relaxed);
  if (other_ != nullptr) other_->Sent(kind, ranks_[static_cast<size_t>(peer)], bytes);
}

void TrafficCounter::Received(OpKind kind, int peer, uint64_t bytes) {
  At(kind, peer).received.fetch_add(bytes, std::memory_order_relaxed);
  if (other_ != nullptr) other_->Received(kind, ranks_[static_cast<size_t>(peer)], bytes);
}

void TrafficCounter::ReceivedOverNetwork(OpKind kind, uint64_t bytes) {
  done_[static_cast<size_t>(kind)].network_received.fetch_add(bytes, std::memory_order_relaxed);
  if (other_ != nullptr) other_->ReceivedOverNetwork(kind, bytes);
}

void TrafficCounter::Completed(OpKind kind, int64_t nanoseconds) {
  CompletedCalls& done = done_[static_cast<size_t>(kind)];
  done.calls.fetch_add(1, std::memory_order_relaxed);
  done.nanoseconds.fetch_add(nanoseconds, std::memory_order_relaxed);
  if (other_ != nullptr) other_->Completed(kind, nanoseconds);
}

std::array<OperationTraffic, kOpKindCount> TrafficCounter::Read() const {
  std::array<OperationTraffic, kOpKindCount> traffic;
  for (size_t kind = 0; kind < traffic.size(); ++kind) {
    traffic[kind].calls = done_[kind].calls.load(std::memory_order_relaxed);
    traffic[kind].seconds =
        1e-9 * static_cast<double>(done_[kind].nanoseconds.load(std::memory_order_relaxed));
    traffic[kind].network_bytes_received =
        done_[kind].network_received.load(std::memory_order_relaxed);
    for (size_t peer = 0; peer < world_size_; ++peer) {
      const Cell& cell = cells_[kind * world_size_ + peer];
      traffic[kind].peers.push_back(
          {.bytes_sent = cell.sent.load(std::memory_order_relaxed),
           .bytes_received = cell.received.load(std::memory_order_relaxed)});
    }
  }
  return traffic;
}

}  // namespace geminid::collectives
