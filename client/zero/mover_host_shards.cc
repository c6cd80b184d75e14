// Gathers within the host, and what they are of.
#include "base/clock.h"
#include "client/zero/mover.h"

namespace geminid::zero {

void Mover::StartCopyWithinHost(const Task& task) {
  const HostShards::Shard shard = context_.host_shards->Of(task.chunk);
  {
    std::lock_guard lock(mutex_);
    copies_pending_[task.chunk] = 1;
    link_.Begin(base::MonotonicNow());
  }
  TransferSpec spec;
  spec.source = shard.chunk;
  spec.destination = context_.gathered[task.chunk];
  spec.destination_offset = shard.begin;
  spec.bytes = shard.bytes;
  spec.allocate_destination = spec.may_evict = true;
  spec.device_offset = task.offset;
  spec.deadline_moment = DeadlineAt(task.moment);
  spec.cause = task.ahead ? TransferCause::kPrefetch : TransferCause::kDemand;
  spec.priority = task.ahead ? Priority::kNormal : Priority::kUrgent;
  context_.session->Transfer(spec).Then(
      Later([this, chunk = task.chunk, bytes = shard.bytes](const absl::Status& status) {
        if (status.ok()) CopyDone(chunk, /*counted=*/true, bytes);
      }));
}

// Nobody uses the chunk before its part is in host memory: what an operator writes there would be
// taken for weights.
void Mover::PublishWhenKept(const Task& task) {
  const HostShards::Shard shard = context_.host_shards->Of(task.chunk);
  TransferSpec spec;
  spec.source = context_.gathered[task.chunk];
  spec.destination = shard.chunk;
  spec.source_offset = shard.begin;
  spec.bytes = shard.bytes;
  spec.cause = TransferCause::kWriteBack;
  spec.priority = task.ahead ? Priority::kNormal : Priority::kUrgent;
  context_.session->Transfer(spec).Then(
      Later([this, chunk = task.chunk](const absl::Status& status) {
        if (status.ok()) Publish(chunk);
      }));
}

void Mover::KeepInHostShard(uint32_t chunk, const std::byte* gathered) {
  const HostShards::Shard shard = context_.host_shards->Of(chunk);
  const ComputePlace& place = compute_->on_host();
  place.ops->Copy(*place.stream, shard.home, gathered + shard.begin, shard.bytes);
}

void Mover::TakeFromHostShard(uint32_t chunk, std::byte* gathered) {
  const HostShards::Shard shard = context_.host_shards->Of(chunk);
  const ComputePlace& place = compute_->on_host();
  place.ops->Copy(*place.stream, gathered + shard.begin, shard.home, shard.bytes);
}

}  // namespace geminid::zero
