// Moves of bytes between the device and host memory, each split into tickets.
#include "client/zero/residency/mover.h"

namespace geminid::zero {

Mover::Copy Mover::CopyOfShard(const Task& task, bool to_device) const {
  return {.chunk = task.chunk,
          .to_device = to_device,
          .begin = ShardOffset(task.chunk),
          .part_bytes = Shape(task.chunk).granule_bytes(),
          .parts = Shape(task.chunk).granules};
}

// An iteration may have more moments than deadlines can number. Copies for moments beyond that have
// no deadline, and run in the order of the requests.
TransferSpec Mover::TicketOf(const Copy& copy, ChunkId host, uint32_t part) const {
  const ChunkId there = context_.setup->gathered[copy.chunk];
  TransferSpec spec;
  spec.source = copy.to_device ? host : there;
  spec.destination = copy.to_device ? there : host;
  (copy.to_device ? spec.destination_offset : spec.source_offset) =
      copy.begin + part * copy.part_bytes;
  spec.bytes = copy.part_bytes;
  spec.priority = copy.urgent ? Priority::kUrgent : Priority::kNormal;
  spec.cause = copy.cause;
  if (copy.moment < kNoDeadline) spec.deadline_moment = static_cast<uint16_t>(copy.moment);
  spec.allocate_destination = spec.may_evict = copy.extent.has_value() && part == 0;
  spec.device_offset = copy.extent.value_or(kAnyOffset);
  return spec;
}

void Mover::StartCopy(const Copy& copy, const std::function<ChunkId(uint32_t part)>& host,
                      const std::function<void(uint32_t part)>& done) {
  for (uint32_t part = 0; part < copy.parts; ++part) {
    session()
        .Transfer(TicketOf(copy, host(part), part))
        .Then(Later([done, part](const absl::Status& status) {
          if (status.ok()) done(part);
        }));
  }
}

absl::Status Mover::CopyNow(const Copy& copy, ChunkId host) {
  return session().Transfer(TicketOf(copy, host, 0)).Wait(timeout());
}

}  // namespace geminid::zero
