#include "collectives/communicator_backend.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "collectives/reduce.h"

namespace geminid::collectives {
namespace {

OpKind KindOfReceived(OpKind kind) { return kind == OpKind::kSend ? OpKind::kReceive : kind; }

}  // namespace

CommunicatorBackend::CommunicatorBackend(int rank, int world_size, absl::Duration timeout)
    : rank_(rank),
      world_size_(world_size),
      timeout_(timeout),
      traffic_(static_cast<size_t>(world_size)),
      counter_(std::make_shared<TrafficCounter>(world_size)) {}

void CommunicatorBackend::BeginCounting(OpKind kind) {
  counted_ = kind;
  network_received_ = NetworkReceived();
  began_ = std::chrono::steady_clock::now();
}

void CommunicatorBackend::CountCompleted(OpKind kind) {
  operations_[static_cast<size_t>(kind)].fetch_add(1, std::memory_order_relaxed);
  const uint64_t received = NetworkReceived();
  counter_->ReceivedOverNetwork(KindOfReceived(kind),
                                received - std::exchange(network_received_, received));
  const auto now = std::chrono::steady_clock::now();
  const std::chrono::nanoseconds taken = now - std::exchange(began_, now);
  counter_->Completed(kind, taken.count());
}

void CommunicatorBackend::CountSent(int peer, size_t bytes) {
  traffic_[static_cast<size_t>(peer)].sent.fetch_add(bytes, std::memory_order_relaxed);
  counter_->Sent(counted_, peer, bytes);
}

void CommunicatorBackend::CountReceived(int peer, size_t bytes) {
  traffic_[static_cast<size_t>(peer)].received.fetch_add(bytes, std::memory_order_relaxed);
  counter_->Received(KindOfReceived(counted_), peer, bytes);
}

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

absl::Status CommunicatorBackend::DetectDeadRanks() {
  if (failed_.load(std::memory_order_acquire)) return health();
  absl::Status status = DoDetectDeadRanks();
  return status.ok() ? status : Poison(status);
}

absl::StatusOr<Survivors> CommunicatorBackend::DoShrink() {
  return absl::UnimplementedError(
      absl::StrCat(BackendName(),
                   ": this group cannot shrink to its survivors; shrink the communicator that the "
                   "group was made over, and connect a new group"));
}

absl::Status CommunicatorBackend::CopyOwn(const std::byte* from, size_t bytes, std::byte* to) {
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
  return absl::OkStatus();
}

absl::Status CommunicatorBackend::Poison(const absl::Status& status) const {
  std::lock_guard lock(failure_mutex_);
  if (!failed_.load(std::memory_order_relaxed)) {
    failure_ = status;
    failed_.store(true, std::memory_order_release);
  }
  return failure_;
}

std::vector<PeerTraffic> CommunicatorBackend::CountedTraffic() const {
  std::vector<PeerTraffic> counted;
  for (const AtomicTraffic& peer : traffic_) {
    counted.push_back({.bytes_sent = peer.sent.load(std::memory_order_relaxed),
                       .bytes_received = peer.received.load(std::memory_order_relaxed)});
  }
  return counted;
}

CommunicatorStats CommunicatorBackend::Stats() const {
  CommunicatorStats stats{.peers = CountedTraffic(),
                          .network = NetworkTraffic(),
                          .traffic = counter_->Read(),
                          .registered_bytes = RegisteredBytes()};
  for (size_t i = 0; i < operations_.size(); ++i) {
    stats.operations[i] = operations_[i].load(std::memory_order_relaxed);
  }
  return stats;
}

absl::Status CommunicatorBackend::DoAllReduce(const Operation& operation, const std::byte* in,
                                              std::byte* out) {
  const size_t width = SizeOf(operation.dtype);
  if (operation.count * width <= kDirectAllReduceBytes) return AllReduceDirect(operation, in, out);
  const Partition parts(operation.count, WorldSize());
  std::byte* own = out + parts.Begin(Rank()) * width;
  GEMINID_RETURN_IF_ERROR(DoReduceScatter(operation, in, own, parts));
  return DoAllGather(operation, own, out, parts);
}

absl::Status CommunicatorBackend::AllReduceDirect(const Operation& operation, const std::byte* in,
                                                  std::byte* out) {
  std::byte* all = Scratch(operation.count * SizeOf(operation.dtype));
  const Partition parts(operation.count * static_cast<size_t>(WorldSize()), WorldSize());
  GEMINID_RETURN_IF_ERROR(DoAllGather(operation, in, all, parts));
  ReduceScratch(operation, out);
  return absl::OkStatus();
}

absl::Status CommunicatorBackend::DoReduce(const Operation& operation, const std::byte* in,
                                           std::byte* out) {
  if (Rank() != operation.root_or_tag) return DoGather(operation, in, nullptr);
  std::byte* all = Scratch(operation.count * SizeOf(operation.dtype));
  GEMINID_RETURN_IF_ERROR(DoGather(operation, in, all));
  ReduceScratch(operation, out);
  return absl::OkStatus();
}

// Messages to the root, which receives them in rank order.
absl::Status CommunicatorBackend::DoGather(const Operation& operation, const std::byte* in,
                                           std::byte* out) {
  const int root = operation.root_or_tag;
  Message message{.operation = operation, .peer = root, .in = in};
  if (root != Rank()) return DoSendReceive(&message, nullptr);
  for (int rank = 0; rank < WorldSize(); ++rank) {
    std::byte* place = out + static_cast<size_t>(rank) * message.bytes();
    const Message receive{.operation = operation, .peer = rank, .out = place};
    GEMINID_RETURN_IF_ERROR(rank == root ? CopyOwn(in, message.bytes(), place)
                                         : DoSendReceive(nullptr, &receive));
  }
  return absl::OkStatus();
}

std::byte* CommunicatorBackend::Scratch(size_t bytes) {
  const size_t needed = bytes * static_cast<size_t>(WorldSize());
  if (scratch_.size() < needed) scratch_.resize(needed);
  return scratch_.data();
}

void CommunicatorBackend::ReduceScratch(const Operation& operation, std::byte* out) const {
  const size_t bytes = operation.count * SizeOf(operation.dtype);
  std::vector<const std::byte*> inputs(static_cast<size_t>(WorldSize()));
  for (size_t r = 0; r < inputs.size(); ++r) inputs[r] = scratch_.data() + r * bytes;
  ReduceInOrder(inputs, out, operation.count, operation.dtype, operation.reduce, operation.scale);
}

}  // namespace geminid::collectives
