#include "collectives/local/local_communicator.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/status_macros.h"
#include "collectives/communicator_backend.h"
#include "collectives/failure.h"
#include "collectives/local/local_group.h"
#include "collectives/reduce.h"

namespace geminid::collectives {
namespace {

class LocalBackend final : public CommunicatorBackend {
 public:
  LocalBackend(std::shared_ptr<LocalGroup> group, int rank, int world_size, absl::Duration timeout)
      : CommunicatorBackend(rank, world_size, timeout), group_(std::move(group)) {}
  ~LocalBackend() override { group_->Leave(Rank()); }

  const char* BackendName() const override { return "local"; }

 protected:
  absl::Status DoAllGather(const Operation& operation, const std::byte* in, std::byte* out,
                           const Partition& parts) override {
    GEMINID_RETURN_IF_ERROR(Open(operation, in, out));
    const size_t width = SizeOf(operation.dtype);
    for (int r = 0; r < WorldSize(); ++r) {
      const size_t bytes = parts.Count(r) * width;
      Copy(out + parts.Begin(r) * width, group_->buffers(r).in, bytes);
      Count(r, parts.Count(Rank()) * width, bytes);
    }
    return Close();
  }

  absl::Status DoReduceScatter(const Operation& operation, const std::byte* in, std::byte* out,
                               const Partition& parts) override {
    GEMINID_RETURN_IF_ERROR(Open(operation, in, out));
    const size_t width = SizeOf(operation.dtype);
    std::vector<const std::byte*> inputs;
    for (int r = 0; r < WorldSize(); ++r) {
      inputs.push_back(group_->buffers(r).in + parts.Begin(Rank()) * width);
      Count(r, parts.Count(r) * width, parts.Count(Rank()) * width);
    }
    ReduceInOrder(inputs, out, parts.Count(Rank()), operation.dtype, operation.reduce,
                  operation.scale);
    return Close();
  }

  absl::Status DoBroadcast(const Operation& operation, std::byte* inout) override {
    GEMINID_RETURN_IF_ERROR(Open(operation, inout, inout));
    const size_t bytes = operation.count * SizeOf(operation.dtype);
    const int root = operation.root_or_tag;
    if (Rank() == root) {
      for (int r = 0; r < WorldSize(); ++r) Count(r, bytes, 0);
    } else {
      Copy(inout, group_->buffers(root).in, bytes);
      Count(root, 0, bytes);
    }
    return Close();
  }

  absl::Status DoAllToAll(const Operation& operation, const std::byte* in,
                          std::byte* out) override {
    GEMINID_RETURN_IF_ERROR(Open(operation, in, out));
    const size_t bytes = operation.count * SizeOf(operation.dtype);
    for (int r = 0; r < WorldSize(); ++r) {
      Copy(out + static_cast<size_t>(r) * bytes,
           group_->buffers(r).in + static_cast<size_t>(Rank()) * bytes, bytes);
      Count(r, bytes, bytes);
    }
    return Close();
  }

  absl::Status DoBarrier(const Operation& operation) override {
    GEMINID_RETURN_IF_ERROR(Open(operation, nullptr, nullptr));
    return Close();
  }

  absl::Status DoSendReceive(const Message* send, const Message* receive) override {
    LocalGroup::PostedMessage message;
    if (send != nullptr) {
      message = {.operation = send->operation, .data = send->in};
      group_->PostMessage(Rank(), send->peer, &message);
    }
    if (receive != nullptr) {
      if (absl::Status s = TakeOne(*receive); !s.ok()) {
        // The group has failed, so this only removes our message.
        if (send != nullptr) (void)group_->AwaitMessage(Rank(), send->peer, &message, timeout());
        return s;
      }
    }
    if (send == nullptr) return absl::OkStatus();
    GEMINID_RETURN_IF_ERROR(group_->AwaitMessage(Rank(), send->peer, &message, timeout()));
    CountSent(send->peer, send->bytes());
    return absl::OkStatus();
  }

  void DoAbort(const absl::Status& status) override { (void)group_->Fail(status); }
  absl::Status DoCheckHealth() const override { return group_->failure(); }

  absl::StatusOr<Survivors> DoShrink() override {
    GEMINID_ASSIGN_OR_RETURN(const LocalGroup::Remainder left, group_->Shrink(Rank(), timeout()));
    const auto own = std::find(left.ranks.begin(), left.ranks.end(), Rank());
    return Survivors{std::make_unique<Communicator>(std::make_unique<LocalBackend>(
                         left.group, static_cast<int>(own - left.ranks.begin()),
                         static_cast<int>(left.ranks.size()), timeout())),
                     left.ranks};
  }

  absl::StatusOr<std::unique_ptr<Communicator>> DoSubset(const std::string& key,
                                                         std::span<const int> ranks,
                                                         Messages /*messages*/) override {
    const int size = static_cast<int>(ranks.size());
    int rank = 0;
    while (ranks[static_cast<size_t>(rank)] != Rank()) ++rank;
    return std::make_unique<Communicator>(
        std::make_unique<LocalBackend>(group_->Subset(key, size), rank, size, timeout()));
  }

 private:
  // Offers the buffers and waits for the others' offers. Every rank sees the same offers, so all
  // ranks succeed or all fail, which Part() relies on.
  absl::Status Open(const Operation& operation, const std::byte* in, const std::byte* out) {
    group_->Post(Rank(), {.operation = operation, .in = in, .out = out});
    GEMINID_RETURN_IF_ERROR(group_->Meet(Rank(), operation, timeout()));
    for (int r = 0; r < WorldSize(); ++r) {
      const Operation& other = group_->buffers(r).operation;
      if (!(other == operation)) {
        return group_->Fail(MismatchError(Rank(), operation, r, other));
      }
    }
    return absl::OkStatus();
  }

  // After this call no peer uses this rank's buffers.
  absl::Status Close() {
    group_->Part(Rank());
    return absl::OkStatus();
  }

  absl::Status TakeOne(const Message& receive) {
    LocalGroup::PostedMessage* message = nullptr;
    GEMINID_RETURN_IF_ERROR(
        group_->TakeMessage(receive.peer, Rank(), receive.operation, timeout(), &message));
    absl::Status status;
    if (message->operation == receive.operation) {
      Copy(receive.out, message->data, receive.bytes());
      CountReceived(receive.peer, receive.bytes());
    } else {
      Operation own = receive.operation;
      own.kind = OpKind::kReceive;
      status = group_->Fail(MismatchError(Rank(), own, receive.peer, message->operation));
    }
    group_->FinishMessage(message);
    return status;
  }

  static void Copy(std::byte* to, const std::byte* from, size_t bytes) {
    if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
  }

  void Count(int peer, size_t sent, size_t received) {
    if (peer == Rank()) return;
    CountSent(peer, sent);
    CountReceived(peer, received);
  }

  const std::shared_ptr<LocalGroup> group_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> MakeLocalCommunicators(int world_size,
                                                                  absl::Duration timeout) {
  auto group = std::make_shared<LocalGroup>(world_size);
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int r = 0; r < world_size; ++r) {
    communicators.push_back(std::make_unique<Communicator>(
        std::make_unique<LocalBackend>(group, r, world_size, timeout)));
  }
  return communicators;
}

std::unique_ptr<Communicator> MakeSelfCommunicator() {
  return std::move(MakeLocalCommunicators(1).front());
}

}  // namespace geminid::collectives
