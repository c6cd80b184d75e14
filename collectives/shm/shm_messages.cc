#include "collectives/shm/shm_messages.h"

#include <algorithm>
#include <cstring>

#include "collectives/failure.h"

namespace geminid::collectives {
namespace {

size_t Pieces(size_t bytes, const ShmGroup& group) {
  const size_t most = group.segment().shape().message_bytes;
  return std::max<size_t>(1, (bytes + most - 1) / most);
}

size_t Bytes(const Operation& operation) { return operation.count * SizeOf(operation.dtype); }

}  // namespace

MessageSender::MessageSender(ShmGroup* group, int peer, const Operation& operation,
                             const std::byte* data)
    : group_(group),
      peer_(peer),
      operation_(operation),
      data_(data),
      bytes_left_(Bytes(operation)),
      pieces_left_(Pieces(bytes_left_, *group)) {}

bool MessageSender::Step() {
  if (done()) return false;
  const Segment& segment = group_->segment();
  Channel& channel = segment.channel(group_->rank(), peer_);
  const uint32_t published = channel.published.load(std::memory_order_relaxed);
  // Unsigned, so that the counters may wrap around.
  if (published - channel.consumed.load(std::memory_order_acquire) >= kMessageSlots) return false;
  const uint32_t slot = published % kMessageSlots;
  if (first_) channel.labels[slot].operation = operation_;
  first_ = false;
  const size_t bytes = std::min<size_t>(bytes_left_, segment.shape().message_bytes);
  if (bytes > 0) std::memcpy(segment.message(group_->rank(), peer_, slot), data_, bytes);
  data_ += bytes;
  bytes_left_ -= bytes;
  --pieces_left_;
  channel.published.store(published + 1, std::memory_order_release);
  segment.control(peer_).doorbell.Bump();
  return true;
}

MessageReceiver::MessageReceiver(ShmGroup* group, int peer, const Operation& operation,
                                 std::byte* data)
    : group_(group),
      peer_(peer),
      operation_(operation),
      data_(data),
      bytes_left_(Bytes(operation)),
      pieces_left_(Pieces(bytes_left_, *group)) {}

bool MessageReceiver::Step(absl::Status* mismatch) {
  if (done()) return false;
  const Segment& segment = group_->segment();
  Channel& channel = segment.channel(peer_, group_->rank());
  const uint32_t consumed = channel.consumed.load(std::memory_order_relaxed);
  if (channel.published.load(std::memory_order_acquire) == consumed) return false;
  const uint32_t slot = consumed % kMessageSlots;
  if (first_) {
    const Operation sent = channel.labels[slot].operation;
    if (!(sent == operation_)) {
      Operation own = operation_;
      own.kind = OpKind::kReceive;
      *mismatch = MismatchError(group_->NameOf(group_->rank()), own, group_->NameOf(peer_), sent);
      return false;
    }
    first_ = false;
  }
  const size_t bytes = std::min<size_t>(bytes_left_, segment.shape().message_bytes);
  if (bytes > 0) std::memcpy(data_, segment.message(peer_, group_->rank(), slot), bytes);
  data_ += bytes;
  bytes_left_ -= bytes;
  --pieces_left_;
  channel.consumed.store(consumed + 1, std::memory_order_release);
  segment.control(peer_).doorbell.Bump();
  return true;
}

}  // namespace geminid::collectives
