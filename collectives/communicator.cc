#include "geminid/communicator.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "collectives/communicator_backend.h"
#include "collectives/segment_books.h"

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

// `part` may be exactly the bytes at `allowed`; otherwise it may not overlap `whole`.
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
  if (operation.reduce > ReduceOp::kMax) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: there is no reduction %d", Name(operation.kind), static_cast<int>(operation.reduce)));
  }
  if (!std::isfinite(operation.scale)) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: scale %g; give a finite number",
                                                      Name(operation.kind), operation.scale));
  }
  if (operation.scale == 1.0) return absl::OkStatus();
  if (operation.reduce == ReduceOp::kSum && IsFloating(operation.dtype)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s: scale %g; only sums of floating-point elements can be scaled, give 1",
                      Name(operation.kind), operation.scale));
}

}  // namespace

Communicator::Communicator(std::unique_ptr<CommunicatorBackend> backend)
    : backend_(std::move(backend)) {}
Communicator::~Communicator() = default;

int Communicator::Rank() const { return backend_->Rank(); }
int Communicator::WorldSize() const { return backend_->WorldSize(); }
const char* Communicator::BackendName() const { return backend_->BackendName(); }
void Communicator::SetTimeout(absl::Duration timeout) { backend_->SetTimeout(timeout); }
absl::Duration Communicator::timeout() const { return backend_->timeout(); }
absl::Status Communicator::health() const { return backend_->health(); }
CommunicatorStats Communicator::Stats() const { return backend_->Stats(); }

void Communicator::SetLabel(std::string_view label) {
  label_ = {};
  std::copy_n(label.begin(), std::min(label.size(), label_.size()), label_.begin());
}

Operation Communicator::Begin(Operation operation) {
  backend_->BeginCounting(operation.kind);
  operation.label = label_;
  return operation;
}

absl::Status Communicator::AllGather(ConstBuffer in, Buffer out) {
  const Operation operation =
      Begin({.kind = OpKind::kAllGather, .dtype = in.dtype, .count = in.count});
  GEMINID_RETURN_IF_ERROR(health());
  GEMINID_RETURN_IF_ERROR(CheckSameType(operation.kind, in, out));
  GEMINID_RETURN_IF_ERROR(CheckCounts(operation.kind, "out", out.count, in.count, WorldSize()));
  const std::byte* own = out.data + static_cast<size_t>(Rank()) * in.bytes();
  GEMINID_RETURN_IF_ERROR(CheckOverlap(operation.kind, out, in, own));
  return Finish(operation.kind, backend_->DoAllGather(operation, in.data, out.data,
                                                      Partition(out.count, WorldSize())));
}

absl::Status Communicator::ReduceScatter(ConstBuffer in, Buffer out, ReduceOp op,
                                         ReduceOptions options) {
  const Operation operation = Begin({.kind = OpKind::kReduceScatter,
                                     .dtype = in.dtype,
                                     .reduce = op,
                                     .count = in.count,
                                     .scale = options.scale});
  GEMINID_RETURN_IF_ERROR(health());
  GEMINID_RETURN_IF_ERROR(CheckSameType(operation.kind, in, out));
  GEMINID_RETURN_IF_ERROR(CheckReduction(operation));
  GEMINID_RETURN_IF_ERROR(CheckCounts(operation.kind, "in", in.count, out.count, WorldSize()));
  const std::byte* own = in.data + static_cast<size_t>(Rank()) * out.bytes();
  GEMINID_RETURN_IF_ERROR(CheckOverlap(operation.kind, in, out, own));
  return Finish(operation.kind, backend_->DoReduceScatter(operation, in.data, out.data,
                                                          Partition(in.count, WorldSize())));
}

absl::Status Communicator::AllReduce(ConstBuffer in, Buffer out, ReduceOp op,
                                     ReduceOptions options) {
  const Operation operation = Begin({.kind = OpKind::kAllReduce,
                                     .dtype = in.dtype,
                                     .reduce = op,
                                     .count = in.count,
                                     .scale = options.scale});
  GEMINID_RETURN_IF_ERROR(health());
  GEMINID_RETURN_IF_ERROR(CheckSameType(operation.kind, in, out));
  GEMINID_RETURN_IF_ERROR(CheckReduction(operation));
  if (in.count != out.count) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "AllReduce: in has %d elements and out %d; give the same count", in.count, out.count));
  }
  GEMINID_RETURN_IF_ERROR(CheckOverlap(operation.kind, out, in, out.data));
  return Finish(operation.kind, backend_->DoAllReduce(operation, in.data, out.data));
}

absl::Status Communicator::Broadcast(Buffer inout, int root) {
  const Operation operation = Begin({.kind = OpKind::kBroadcast,
                                     .dtype = inout.dtype,
                                     .root_or_tag = root,
                                     .count = inout.count});
  GEMINID_RETURN_IF_ERROR(health());
  GEMINID_RETURN_IF_ERROR(CheckSameType(operation.kind, inout, inout));
  GEMINID_RETURN_IF_ERROR(CheckPeer(root, "Broadcast: root"));
  return Finish(operation.kind, backend_->DoBroadcast(operation, inout.data));
}

absl::Status Communicator::Reduce(ConstBuffer in, Buffer out, int root, ReduceOp op,
                                  ReduceOptions options) {
  const Operation operation = Begin({.kind = OpKind::kReduce,
                                     .dtype = in.dtype,
                                     .reduce = op,
                                     .root_or_tag = root,
                                     .count = in.count,
                                     .scale = options.scale});
  GEMINID_RETURN_IF_ERROR(health());
  GEMINID_RETURN_IF_ERROR(CheckPeer(root, "Reduce: root"));
  GEMINID_RETURN_IF_ERROR(CheckReduction(operation));
  GEMINID_RETURN_IF_ERROR(CheckSameType(operation.kind, in, root == Rank() ? out : in));
  if (root != Rank())
    return Finish(operation.kind, backend_->DoReduce(operation, in.data, nullptr));
  if (in.count != out.count) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "Reduce: in has %d elements and out %d; give the same count", in.count, out.count));
  }
  GEMINID_RETURN_IF_ERROR(CheckOverlap(operation.kind, out, in, out.data));
  return Finish(operation.kind, backend_->DoReduce(operation, in.data, out.data));
}

absl::Status Communicator::Gather(ConstBuffer in, Buffer out, int root) {
  const Operation operation =
      Begin({.kind = OpKind::kGather, .dtype = in.dtype, .root_or_tag = root, .count = in.count});
  GEMINID_RETURN_IF_ERROR(health());
  GEMINID_RETURN_IF_ERROR(CheckPeer(root, "Gather: root"));
  GEMINID_RETURN_IF_ERROR(CheckSameType(operation.kind, in, root == Rank() ? out : in));
  if (root != Rank())
    return Finish(operation.kind, backend_->DoGather(operation, in.data, nullptr));
  GEMINID_RETURN_IF_ERROR(CheckCounts(operation.kind, "out", out.count, in.count, WorldSize()));
  const std::byte* own = out.data + static_cast<size_t>(Rank()) * in.bytes();
  GEMINID_RETURN_IF_ERROR(CheckOverlap(operation.kind, out, in, own));
  return Finish(operation.kind, backend_->DoGather(operation, in.data, out.data));
}

absl::Status Communicator::AllToAll(ConstBuffer in, Buffer out) {
  const auto ranks = static_cast<size_t>(WorldSize());
  const Operation operation =
      Begin({.kind = OpKind::kAllToAll, .dtype = in.dtype, .count = in.count / ranks});
  GEMINID_RETURN_IF_ERROR(health());
  GEMINID_RETURN_IF_ERROR(CheckSameType(operation.kind, in, out));
  if (in.count != out.count || in.count % ranks != 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "AllToAll: in has %d elements and out %d; give the same count, divisible by %d ranks",
        in.count, out.count, WorldSize()));
  }
  GEMINID_RETURN_IF_ERROR(CheckOverlap(operation.kind, out, in, nullptr));
  return Finish(operation.kind, backend_->DoAllToAll(operation, in.data, out.data));
}

absl::Status Communicator::Barrier() {
  GEMINID_RETURN_IF_ERROR(health());
  const Operation operation = Begin({.kind = OpKind::kBarrier});
  return Finish(operation.kind, backend_->DoBarrier(operation));
}

absl::Status Communicator::Send(ConstBuffer in, int peer, int tag) {
  backend_->BeginCounting(OpKind::kSend);
  GEMINID_RETURN_IF_ERROR(health());
  GEMINID_RETURN_IF_ERROR(CheckSameType(OpKind::kSend, in, in));
  GEMINID_RETURN_IF_ERROR(CheckPeer(peer, "Send: peer"));
  if (peer == Rank()) {
    return absl::InvalidArgumentError("Send: peer is this rank; use SendReceive for a self copy");
  }
  const CommunicatorBackend::Message message{.operation = {.kind = OpKind::kSend,
                                                           .dtype = in.dtype,
                                                           .root_or_tag = tag,
                                                           .count = in.count},
                                             .peer = peer,
                                             .in = in.data};
  return Finish(OpKind::kSend, backend_->DoSendReceive(&message, nullptr));
}

absl::Status Communicator::Receive(Buffer out, int peer, int tag) {
  backend_->BeginCounting(OpKind::kSend);
  GEMINID_RETURN_IF_ERROR(health());
  GEMINID_RETURN_IF_ERROR(CheckSameType(OpKind::kReceive, out, out));
  GEMINID_RETURN_IF_ERROR(CheckPeer(peer, "Receive: peer"));
  if (peer == Rank()) {
    return absl::InvalidArgumentError(
        "Receive: peer is this rank; use SendReceive for a self copy");
  }
  const CommunicatorBackend::Message message{.operation = {.kind = OpKind::kSend,
                                                           .dtype = out.dtype,
                                                           .root_or_tag = tag,
                                                           .count = out.count},
                                             .peer = peer,
                                             .out = out.data};
  return Finish(OpKind::kReceive, backend_->DoSendReceive(nullptr, &message));
}

absl::Status Communicator::SendReceive(ConstBuffer in, int send_peer, Buffer out, int receive_peer,
                                       int tag) {
  backend_->BeginCounting(OpKind::kSend);
  GEMINID_RETURN_IF_ERROR(health());
  GEMINID_RETURN_IF_ERROR(CheckSameType(OpKind::kSend, in, in));
  GEMINID_RETURN_IF_ERROR(CheckSameType(OpKind::kReceive, out, out));
  GEMINID_RETURN_IF_ERROR(CheckPeer(send_peer, "SendReceive: send_peer"));
  GEMINID_RETURN_IF_ERROR(CheckPeer(receive_peer, "SendReceive: receive_peer"));
  GEMINID_RETURN_IF_ERROR(CheckOverlap(OpKind::kSend, out, in, nullptr));
  if ((send_peer == Rank()) != (receive_peer == Rank())) {
    return absl::InvalidArgumentError(
        "SendReceive: only one of the two peers is this rank; a self copy needs both");
  }
  if (send_peer == Rank()) {
    if (in.count != out.count || in.dtype != out.dtype) {
      return absl::InvalidArgumentError("SendReceive to this rank: in and out differ in size");
    }
    const absl::Status copied = backend_->CopyOwn(in.data, in.bytes(), out.data);
    if (copied.ok()) backend_->CountCompleted(OpKind::kSend);
    return Finish(OpKind::kReceive, copied);
  }
  CommunicatorBackend::Message send{.operation = {.kind = OpKind::kSend,
                                                  .dtype = in.dtype,
                                                  .root_or_tag = tag,
                                                  .count = in.count},
                                    .peer = send_peer,
                                    .in = in.data};
  CommunicatorBackend::Message receive = send;
  receive.operation.dtype = out.dtype;
  receive.operation.count = out.count;
  receive.peer = receive_peer;
  receive.in = nullptr;
  receive.out = out.data;
  const absl::Status status = backend_->DoSendReceive(&send, &receive);
  if (status.ok()) {
    backend_->CountCompleted(OpKind::kSend);
  }
  return Finish(OpKind::kReceive, status);
}

void Communicator::Abort(const std::string& reason) {
  constexpr size_t kMaxReasonBytes = 400;  // fits into every backend's failure record
  const absl::Status status = absl::AbortedError(absl::StrCat(
      "rank ", Rank(), " aborted the communicator: ", reason.substr(0, kMaxReasonBytes)));
  backend_->Abort(status);
}

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::Duplicate(const std::string& name,
                                                                      Messages messages) {
  std::vector<int> ranks(static_cast<size_t>(WorldSize()));
  for (int r = 0; r < WorldSize(); ++r) ranks[static_cast<size_t>(r)] = r;
  return MakeSubset(name, ranks, messages);
}

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::Subset(const std::string& name,
                                                                   std::span<const int> ranks) {
  return MakeSubset(name, ranks, Messages::kLarge);
}

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::MakeSubset(const std::string& name,
                                                                       std::span<const int> ranks,
                                                                       Messages messages) {
  GEMINID_RETURN_IF_ERROR(health());
  std::vector<int> sorted(ranks.begin(), ranks.end());
  std::sort(sorted.begin(), sorted.end());
  const bool distinct = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
  const bool in_range = !sorted.empty() && sorted.front() >= 0 && sorted.back() < WorldSize();
  if (!distinct || !in_range || !std::binary_search(sorted.begin(), sorted.end(), Rank())) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "Subset \"%s\": ranks {%s} must be distinct, in [0, %d) and contain this rank %d", name,
        absl::StrJoin(ranks, ", "), WorldSize(), Rank()));
  }
  // The members create the same subsets in the same order, so a count distinguishes two uses.
  const std::string base = absl::StrCat(name, "/", absl::StrJoin(ranks, "."));
  auto used = std::find_if(names_.begin(), names_.end(),
                           [&](const auto& entry) { return entry.first == base; });
  if (used == names_.end()) used = names_.insert(names_.end(), {base, 0});
  const std::string key = absl::StrCat(base, "/", used->second++);
  auto subset = backend_->DoSubset(key, ranks, messages);
  if (!subset.ok()) return subset;
  (*subset)->SetTimeout(timeout());
  BackendOf(**subset).counter()->CountFor(backend_->counter(), ranks);
  return subset;
}

absl::StatusOr<Survivors> Communicator::Shrink() {
  backend_->Abort(absl::AbortedError(
      absl::StrCat("rank ", Rank(), " shrinks the group to the ranks that are left")));
  auto survivors = backend_->DoShrink();
  if (survivors.ok()) survivors->communicator->SetTimeout(timeout());
  return survivors;
}

absl::StatusOr<std::shared_ptr<void>> Communicator::ChargeSegments(SegmentCharger charger) {
  SegmentBooks* const books = backend_->Books();
  if (books == nullptr) return nullptr;
  return books->ChargeBy(std::move(charger));
}

CommunicatorBackend& BackendOf(Communicator& communicator) { return *communicator.backend_; }

absl::Status Communicator::Finish(OpKind kind, absl::Status status) {
  if (!status.ok()) return backend_->Poison(status);
  backend_->CountCompleted(kind);
  return status;
}

absl::Status Communicator::CheckPeer(int peer, const char* what) const {
  if (peer >= 0 && peer < WorldSize()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s is %d; ranks are 0 to %d", what, peer, WorldSize() - 1));
}

}  // namespace geminid::collectives
