// Gathers within the host, and the copies in host memory that they read.
#include "client/zero/residency/mover.h"

namespace geminid::zero {

// The chunk is published only after its shard is in host memory. Otherwise an operator could
// overwrite the extent, and its values would be stored as weights.
void Mover::PublishWhenKept(const Task& task) {
  const HostShards::Shard shard = context_.host_shards->Of(task.chunk);
  const Copy copy = {.chunk = task.chunk,
                     .begin = shard.begin,
                     .part_bytes = shard.bytes,
                     .urgent = !task.ahead,
                     .cause = TransferCause::kWriteBack};
  StartCopy(
      copy, [shard](uint32_t) { return shard.chunk; },
      [this, chunk = task.chunk](uint32_t) { Publish(chunk); });
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
