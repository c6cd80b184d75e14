#include "collectives/communicator_backend.h"

namespace geminid::collectives {

CommunicatorBackend::CommunicatorBackend(int rank, int world_size, absl::Duration timeout)
    : rank_(rank),
      world_size_(world_size),
      timeout_(timeout),
      traffic_(static_cast<size_t>(world_size)) {}

void CommunicatorBackend::Abort(const absl::Status& status) {
  {
    std::lock_guard lock(failure_mutex_);
    if (failed_.load(std::memory_order_relaxed)) return;
    failure_ = status;
    failed_.store(true, std::memory_order_release);
  }
  DoAbort(status);
}

absl::Status CommunicatorBackend::health() const {
  if (failed_.load(std::memory_order_acquire)) {
    std::lock_guard lock(failure_mutex_);
    return failure_;
  }
  absl::Status status = DoCheckHealth();
  return status.ok() ? status : Poison(status);
}

absl::Status CommunicatorBackend::Poison(const absl::Status& status) const {
  std::lock_guard lock(failure_mutex_);
  if (!failed_.load(std::memory_order_relaxed)) {
    failure_ = status;
    failed_.store(true, std::memory_order_release);
  }
  return failure_;
}

CommunicatorStats CommunicatorBackend::Stats() const {
  CommunicatorStats stats;
  for (const AtomicTraffic& peer : traffic_) {
    stats.peers.push_back({.bytes_sent = peer.sent.load(std::memory_order_relaxed),
                           .bytes_received = peer.received.load(std::memory_order_relaxed)});
  }
  for (size_t i = 0; i < operations_.size(); ++i) {
    stats.operations[i] = operations_[i].load(std::memory_order_relaxed);
  }
  return stats;
}

}  // namespace geminid::collectives
