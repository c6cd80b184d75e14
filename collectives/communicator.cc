#include "collectives/communicator.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "collectives/reduce.h"

namespace geminid::collectives {
namespace {

absl::Status CheckSameType(OpKind kind, ConstBuffer in, ConstBuffer out) {
  if (SizeOf(in.dtype) == 0 || in.dtype != out.dtype) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: in holds %s and out holds %s; give both the same element type",
                        Name(kind), Name(in.dtype), Name(out.dtype)));
  }
  if ((in.count > 0 && in.data == nullptr) || (out.count > 0 && out.data == nullptr)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: a buffer with elements has a null address", Name(kind)));
  }
  return absl::OkStatus();
}

absl::Status CheckCounts(OpKind kind, const char* longer_name, size_t longer, size_t shorter,
                         int world_size) {
  if (longer == shorter * static_cast<size_t>(world_size)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s: %s has %d elements; with %d ranks and %d elements per rank it needs %d", Name(kind),
      longer_name, longer, world_size, shorter, shorter * static_cast<size_t>(world_size)));
}

// `inside` may be exactly the bytes at `allowed`, and otherwise may not touch `whole`.
absl::Status CheckOverlap(OpKind kind, ConstBuffer whole, ConstBuffer part,
                          const std::byte* allowed) {
  if (part.bytes() == 0 || whole.bytes() == 0 || part.data == allowed) return absl::OkStatus();
  const std::less<const std::byte*> before;
  if (!before(part.data, whole.data + whole.bytes()) ||
      !before(whole.data, part.data + part.bytes())) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s: in and out overlap in a way that is not the documented in-place form", Name(kind)));
}

absl::Status CheckReduction(const Operation& operation) {
  if (operation.scale == 1.0) return absl::OkStatus();
  if (operation.reduce == ReduceOp::kSum && IsFloating(operation.dtype)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s: scale %g; only sums of floating-point elements can be scaled, give 1",
                      Name(operation.kind), operation.scale));
}

}  // namespace

Communicator::Communicator(int rank, int world_size, absl::Duration timeout)
    : rank_(rank),
      world_size_(world_size),
      timeout_(timeout),
      traffic_(static_cast<size_t>(world_size)) {}

absl::Status Communicator::AllGather(ConstBuffer in, Buffer out) {
  const Operation operation{.kind = OpKind::kAllGather, .dtype = in.dtype, .count = in.count};
  GEMINID_RETURN_IF_ERROR(health());
  GEMINID_RETURN_IF_ERROR(CheckSameType(operation.kind, in, out));
  GEMINID_RETURN_IF_ERROR(CheckCounts(operation.kind, "out", out.count, in.count, world_size_));
  const std::byte* own = out.data + static_cast<size_t>(rank_) * in.bytes();
  GEMINID_RETURN_IF_ERROR(CheckOverlap(operation.kind, out, in, own));
  return Finish(operation.kind,
                DoAllGather(operation, in.data, out.data, Partition(out.count, world_size_)));
}

absl::Status Communicator::ReduceScatter(ConstBuffer in, Buffer out, ReduceOp op,
                                         ReduceOptions options) {
  const Operation operation{.kind = OpKind::kReduceScatter,
                            .dtype = in.dtype,
                            .reduce = op,
                            .count = in.count,
                            .scale = options.scale};
  GEMINID_RETURN_IF_ERROR(health());
  GEMINID_RETURN_IF_ERROR(CheckSameType(operation.kind, in, out));
  GEMINID_RETURN_IF_ERROR(CheckReduction(operation));
  GEMINID_RETURN_IF_ERROR(CheckCounts(operation.kind, "in", in.count, out.count, world_size_));
  const std::byte* own = in.data + static_cast<size_t>(rank_) * out.bytes();
  GEMINID_RETURN_IF_ERROR(CheckOverlap(operation.kind, in, out, own));
  return Finish(operation.kind,
                DoReduceScatter(operation, in.data, out.data, Partition(in.count, world_size_)));
}

absl::Status Communicator::AllReduce(ConstBuffer in, Buffer out, ReduceOp op,
                                     ReduceOptions options) {
  const Operation operation{.kind = OpKind::kAllReduce,
                            .dtype = in.dtype,
                            .reduce = op,
                            .count = in.count,
                            .scale = options.scale};
  GEMINID_RETURN_IF_ERROR(health());
  GEMINID_RETURN_IF_ERROR(CheckSameType(operation.kind, in, out));
  GEMINID_RETURN_IF_ERROR(CheckReduction(operation));
  if (in.count != out.count) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "AllReduce: in has %d elements and out %d; give the same count", in.count, out.count));
  }
  GEMINID_RETURN_IF_ERROR(CheckOverlap(operation.kind, out, in, out.data));
  return Finish(operation.kind, in.bytes() <= kDirectAllReduceBytes
                                    ? AllReduceDirect(operation, in.data, out.data)
                                    : AllReduceSliced(operation, in.data, out.data));
}

absl::Status Communicator::AllReduceDirect(const Operation& operation, const std::byte* in,
                                           std::byte* out) {
  const size_t bytes = operation.count * SizeOf(operation.dtype);
  const auto ranks = static_cast<size_t>(world_size_);
  if (scratch_.size() < bytes * ranks) scratch_.resize(bytes * ranks);
  const Partition parts(operation.count * ranks, world_size_);
  GEMINID_RETURN_IF_ERROR(DoAllGather(operation, in, scratch_.data(), parts));
  std::vector<const std::byte*> inputs(ranks);
  for (size_t r = 0; r < ranks; ++r) inputs[r] = scratch_.data() + r * bytes;
  ReduceInOrder(inputs, out, operation.count, operation.dtype, operation.reduce, operation.scale);
  return absl::OkStatus();
}

absl::Status Communicator::AllReduceSliced(const Operation& operation, const std::byte* in,
                                           std::byte* out) {
  const Partition parts(operation.count, world_size_);
  std::byte* own = out + parts.Begin(rank_) * SizeOf(operation.dtype);
  GEMINID_RETURN_IF_ERROR(DoReduceScatter(operation, in, own, parts));
  return DoAllGather(operation, own, out, parts);
}

absl::Status Communicator::Broadcast(Buffer inout, int root) {
  const Operation operation{
      .kind = OpKind::kBroadcast, .dtype = inout.dtype, .root_or_tag = root, .count = inout.count};
  GEMINID_RETURN_IF_ERROR(health());
  GEMINID_RETURN_IF_ERROR(CheckSameType(operation.kind, inout, inout));
  GEMINID_RETURN_IF_ERROR(CheckPeer(root, "Broadcast: root"));
  return Finish(operation.kind, DoBroadcast(operation, inout.data));
}

absl::Status Communicator::AllToAll(ConstBuffer in, Buffer out) {
  const auto ranks = static_cast<size_t>(world_size_);
  const Operation operation{
      .kind = OpKind::kAllToAll, .dtype = in.dtype, .count = in.count / ranks};
  GEMINID_RETURN_IF_ERROR(health());
  GEMINID_RETURN_IF_ERROR(CheckSameType(operation.kind, in, out));
  if (in.count != out.count || in.count % ranks != 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "AllToAll: in has %d elements and out %d; give the same count, divisible by %d ranks",
        in.count, out.count, world_size_));
  }
  GEMINID_RETURN_IF_ERROR(CheckOverlap(operation.kind, out, in, nullptr));
  return Finish(operation.kind, DoAllToAll(operation, in.data, out.data));
}

absl::Status Communicator::Barrier() {
  GEMINID_RETURN_IF_ERROR(health());
  const Operation operation{.kind = OpKind::kBarrier};
  return Finish(operation.kind, DoBarrier(operation));
}

absl::Status Communicator::Send(ConstBuffer in, int peer, int tag) {
  GEMINID_RETURN_IF_ERROR(health());
  GEMINID_RETURN_IF_ERROR(CheckSameType(OpKind::kSend, in, in));
  GEMINID_RETURN_IF_ERROR(CheckPeer(peer, "Send: peer"));
  if (peer == rank_) {
    return absl::InvalidArgumentError("Send: peer is this rank; use SendReceive for a self copy");
  }
  const Message message{.operation = {.kind = OpKind::kSend,
                                      .dtype = in.dtype,
                                      .root_or_tag = tag,
                                      .count = in.count},
                        .peer = peer,
                        .in = in.data};
  return Finish(OpKind::kSend, DoSendReceive(&message, nullptr));
}

absl::Status Communicator::Receive(Buffer out, int peer, int tag) {
  GEMINID_RETURN_IF_ERROR(health());
  GEMINID_RETURN_IF_ERROR(CheckSameType(OpKind::kReceive, out, out));
  GEMINID_RETURN_IF_ERROR(CheckPeer(peer, "Receive: peer"));
  if (peer == rank_) {
    return absl::InvalidArgumentError(
        "Receive: peer is this rank; use SendReceive for a self copy");
  }
  const Message message{.operation = {.kind = OpKind::kSend,
                                      .dtype = out.dtype,
                                      .root_or_tag = tag,
                                      .count = out.count},
                        .peer = peer,
                        .out = out.data};
  return Finish(OpKind::kReceive, DoSendReceive(nullptr, &message));
}

absl::Status Communicator::SendReceive(ConstBuffer in, int send_peer, Buffer out, int receive_peer,
                                       int tag) {
  GEMINID_RETURN_IF_ERROR(health());
  GEMINID_RETURN_IF_ERROR(CheckSameType(OpKind::kSend, in, in));
  GEMINID_RETURN_IF_ERROR(CheckSameType(OpKind::kReceive, out, out));
  GEMINID_RETURN_IF_ERROR(CheckPeer(send_peer, "SendReceive: send_peer"));
  GEMINID_RETURN_IF_ERROR(CheckPeer(receive_peer, "SendReceive: receive_peer"));
  GEMINID_RETURN_IF_ERROR(CheckOverlap(OpKind::kSend, out, in, nullptr));
  if ((send_peer == rank_) != (receive_peer == rank_)) {
    return absl::InvalidArgumentError(
        "SendReceive: only one of the two peers is this rank; a self copy needs both");
  }
  if (send_peer == rank_) {
    if (in.count != out.count || in.dtype != out.dtype) {
      return absl::InvalidArgumentError("SendReceive to this rank: in and out differ in size");
    }
    if (in.bytes() > 0) std::memcpy(out.data, in.data, in.bytes());
    operations_[static_cast<size_t>(OpKind::kSend)].fetch_add(1, std::memory_order_relaxed);
    return Finish(OpKind::kReceive, absl::OkStatus());
  }
  Message send{.operation = {.kind = OpKind::kSend,
                             .dtype = in.dtype,
                             .root_or_tag = tag,
                             .count = in.count},
               .peer = send_peer,
               .in = in.data};
  Message receive = send;
  receive.operation.dtype = out.dtype;
  receive.operation.count = out.count;
  receive.peer = receive_peer;
  receive.in = nullptr;
  receive.out = out.data;
  const absl::Status status = DoSendReceive(&send, &receive);
  if (status.ok()) {
    operations_[static_cast<size_t>(OpKind::kSend)].fetch_add(1, std::memory_order_relaxed);
  }
  return Finish(OpKind::kReceive, status);
}

void Communicator::Abort(const std::string& reason) {
  constexpr size_t kMaxReasonBytes = 400;  // fits every backend's failure record
  const absl::Status status = absl::AbortedError(absl::StrCat(
      "rank ", rank_, " aborted the communicator: ", reason.substr(0, kMaxReasonBytes)));
  {
    std::lock_guard lock(failure_mutex_);
    if (failed_.load(std::memory_order_relaxed)) return;
    failure_ = status;
    failed_.store(true, std::memory_order_release);
  }
  DoAbort(status);
}

absl::Status Communicator::health() const {
  if (failed_.load(std::memory_order_acquire)) {
    std::lock_guard lock(failure_mutex_);
    return failure_;
  }
  absl::Status status = DoCheckHealth();
  return status.ok() ? status : Poison(status);
}

absl::Status Communicator::Poison(const absl::Status& status) const {
  std::lock_guard lock(failure_mutex_);
  if (!failed_.load(std::memory_order_relaxed)) {
    failure_ = status;
    failed_.store(true, std::memory_order_release);
  }
  return failure_;
}

CommunicatorStats Communicator::Stats() const {
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

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::Duplicate(const std::string& name) {
  std::vector<int> ranks(static_cast<size_t>(world_size_));
  for (int r = 0; r < world_size_; ++r) ranks[static_cast<size_t>(r)] = r;
  return Subset(name, ranks);
}

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::Subset(const std::string& name,
                                                                   std::span<const int> ranks) {
  GEMINID_RETURN_IF_ERROR(health());
  std::vector<int> sorted(ranks.begin(), ranks.end());
  std::sort(sorted.begin(), sorted.end());
  const bool distinct = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
  const bool in_range = !sorted.empty() && sorted.front() >= 0 && sorted.back() < world_size_;
  if (!distinct || !in_range || !std::binary_search(sorted.begin(), sorted.end(), rank_)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "Subset \"%s\": ranks {%s} must be distinct, in [0, %d) and contain this rank %d", name,
        absl::StrJoin(ranks, ", "), world_size_, rank_));
  }
  // The members make the same subsets in the same order, so a count tells two uses apart.
  const std::string base = absl::StrCat(name, "/", absl::StrJoin(ranks, "."));
  auto used = std::find_if(names_.begin(), names_.end(),
                           [&](const auto& entry) { return entry.first == base; });
  if (used == names_.end()) used = names_.insert(names_.end(), {base, 0});
  const std::string key = absl::StrCat(base, "/", used->second++);
  auto subset = DoSubset(key, ranks);
  if (subset.ok()) (*subset)->SetTimeout(timeout_);
  return subset;
}

absl::Status Communicator::Finish(OpKind kind, absl::Status status) {
  if (!status.ok()) return Poison(status);
  operations_[static_cast<size_t>(kind)].fetch_add(1, std::memory_order_relaxed);
  return status;
}

absl::Status Communicator::CheckPeer(int peer, const char* what) const {
  if (peer >= 0 && peer < world_size_) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s is %d; ranks are 0 to %d", what, peer, world_size_ - 1));
}

}  // namespace geminid::collectives
