// Gathers weights onto the device, and moves chunks that must make room.
#include <functional>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "client/zero/residency/mover.h"

namespace geminid::zero {

// Every thread that changes something a gather may wait for calls this, even while the mover's
// thread is busy. Only one thread at a time executes the loop, so that copies are requested in
// order.
void Mover::StartGathers() {
  Lock lock(mutex_);
  if (starting_) return;  // the thread in the loop looks again
  starting_ = true;
  while (status_.ok()) {
    const std::optional<Task> task = queue_.TakeStart(context_.weights_current);
    if (!task.has_value()) break;
    lock.unlock();
    StartGather(*task);
    lock.lock();
  }
  starting_ = false;
}

void Mover::StartGather(const Task& task) {
  context_.meter->AddModel(static_cast<int64_t>(queue_.bytes(task.chunk)));
  const bool on_device = task.kind == Task::Kind::kOpen || context_.store->on_device(task.chunk);
  if (on_device && !task.within_host) {
    StartLocally(task);
  } else {
    StartCopies(task);
  }
}

// Nothing crosses the link: the extent is filled on the device.
void Mover::StartLocally(const Task& task) {
  {
    std::lock_guard lock(mutex_);
    queue_.Copying(task.chunk, 1);
  }
  const auto fill = [this, task](const absl::Status& status) {
    if (!status.ok()) return;
    const ComputePlace& place = compute_->on_device();
    if (task.kind == Task::Kind::kOpen) {
      place.ops->Zero(*place.stream, Extent(task.chunk), Shape(task.chunk).bytes());
    } else {
      QueueShardTo(task.chunk, Shard(task.chunk));
    }
    After(place, [this, task] {
      CopyDone(task.chunk, std::nullopt);
      return absl::OkStatus();
    });
  };
  session()
      .AllocateExtent(context_.setup->gathered[task.chunk], task.offset, /*may_evict=*/true)
      .Then(Later(fill));
}

void Mover::StartCopies(const Task& task) {
  const ChunkShape& shape = Shape(task.chunk);
  Copy copy = CopyOfShard(task, /*to_device=*/true);
  std::function<ChunkId(uint32_t part)> host = [&](uint32_t g) {
    return context_.store->WeightChunk(shape.first_granule + g);
  };
  if (task.within_host) {
    const HostShards::Shard shard = context_.host_shards->Of(task.chunk);
    copy.begin = shard.begin;
    copy.part_bytes = shard.bytes;
    copy.parts = 1;
    host = [shard](uint32_t) { return shard.chunk; };
  }
  copy.urgent = !task.ahead;
  copy.cause = task.ahead ? TransferCause::kPrefetch : TransferCause::kDemand;
  copy.extent = task.offset;
  copy.moment = task.moment;
  {
    std::lock_guard lock(mutex_);
    queue_.Copying(task.chunk, copy.parts);
    link_.Begin(base::MonotonicNow());
  }
  StartCopy(copy, host, [this, chunk = task.chunk, bytes = copy.parts * copy.part_bytes](uint32_t) {
    CopyDone(chunk, bytes);
  });
}

void Mover::CopyDone(uint32_t chunk, std::optional<uint64_t> counted_bytes) {
  std::lock_guard lock(mutex_);
  if (!queue_.CopyEnded(chunk)) return;
  queue_.Copied(chunk);
  if (counted_bytes.has_value()) link_.End(base::MonotonicNow(), *counted_bytes);
}

absl::Status Mover::FinishGather(const Task& task) {
  GEMINID_RETURN_IF_ERROR(collectives_.AllGather(InCollective(task, Extent(task.chunk))));
  if (FillsHostShard(task)) {
    PublishWhenKept(task);
  } else {
    Publish(task.chunk);
  }
  return absl::OkStatus();
}

void Mover::Publish(uint32_t chunk) {
  const auto offset = static_cast<uint64_t>(Extent(chunk) - session().arena());
  if (const absl::Status shown = views_.Show(chunk, offset); !shown.ok()) return Fail(shown);
  {
    std::lock_guard lock(mutex_);
    queue_.Publishing(chunk);
  }
  session()
      .Publish(context_.setup->gathered[chunk])
      .Then(Later([this, chunk](const absl::Status& status) {
        if (status.ok()) Arrive(chunk);
      }));
}

absl::Status Mover::GatherToHost(const Task& task) {
  std::byte* const chunk = task.home;
  if (task.within_host) {
    TakeFromHostShard(task.chunk, chunk);
  } else {
    QueueShardTo(task.chunk, chunk + ShardOffset(task.chunk));
    GEMINID_RETURN_IF_ERROR(compute_->Of(context_.store->on_device(task.chunk)).Finish());
  }
  GEMINID_RETURN_IF_ERROR(collectives_.AllGather(InCollective(task, chunk)));
  if (FillsHostShard(task)) KeepInHostShard(task.chunk, chunk);
  {
    std::lock_guard lock(mutex_);
    queue_.GatheredToHost(task.chunk);
  }
  Changed();
  return absl::OkStatus();
}

void Mover::QueueShardTo(uint32_t chunk, std::byte* shard) const {
  const ChunkShape& shape = Shape(chunk);
  const ComputePlace& place = compute_->Of(context_.store->on_device(chunk));
  for (uint32_t g = 0; g < shape.granules; ++g) {
    place.ops->Copy(*place.stream, shard + g * shape.granule_bytes(),
                    context_.store->Current(shape.first_granule + g).weight, shape.granule_bytes());
  }
}

ChunkCollectives::Chunk Mover::InCollective(const Task& task, std::byte* data) const {
  return {.label = absl::StrCat("chunk ", LayoutChunk(task.chunk), " in operator ", task.operation,
                                ", move ", task.number),
          .id = context_.setup->gathered[task.chunk],
          .data = data,
          .shape = &Shape(task.chunk),
          .within_host = task.within_host};
}

// --- chunks that make room -----------------------------------------------------------------------

absl::StatusOr<bool> Mover::TakeBuffers(std::span<const uint32_t> chunks) {
  std::vector<uint32_t> taken;
  for (uint32_t chunk : chunks) {
    if (buffers_.Has(chunk)) continue;
    const uint64_t bytes = session().Bytes(context_.setup->gathered[chunk]);
    const absl::Status status = buffers_.Take(chunk, bytes).status();
    if (status.ok()) {
      taken.push_back(chunk);
      continue;
    }
    // Spare buffers of this size would only fit chunks of this size.
    for (uint32_t earlier : taken) GEMINID_RETURN_IF_ERROR(buffers_.Free(earlier));
    if (!absl::IsResourceExhausted(status)) return status;
    return false;
  }
  return true;
}

absl::Status Mover::ToHost(uint32_t chunk) {
  GEMINID_RETURN_IF_ERROR(WaitResident(chunk));
  GEMINID_RETURN_IF_ERROR(WaitUnused(chunk));
  const uint64_t bytes = session().Bytes(context_.setup->gathered[chunk]);
  GEMINID_ASSIGN_OR_RETURN(const ChunkHandle buffer, buffers_.Take(chunk, bytes));
  const Copy copy = {
      .chunk = chunk, .part_bytes = bytes, .urgent = true, .cause = TransferCause::kWriteBack};
  GEMINID_RETURN_IF_ERROR(CopyNow(copy, buffer.id));
  Drop(chunk);
  return absl::OkStatus();
}

absl::Status Mover::ToDevice(const Step& step, const Purpose& purpose) {
  const uint32_t chunk = step.chunk;
  {
    Lock lock(mutex_);
    GEMINID_RETURN_IF_ERROR(Await(
        &lock,
        [&] {
          const uint64_t end = step.offset + queue_.bytes(chunk);
          return queue_.NoTask(chunk) && queue_.Clear(step.offset, end) &&
                 !queue_.IsClosed(step.offset, end);
        },
        "room for " + context_.names(chunk), [] { return StallCause::kSpace; }));
    queue_.Occupy(chunk, step.offset);
    leases_.Ask(chunk);
  }
  context_.meter->AddModel(static_cast<int64_t>(queue_.bytes(chunk)));
  const Copy copy = {.chunk = chunk,
                     .to_device = true,
                     .part_bytes = session().Bytes(context_.setup->gathered[chunk]),
                     .urgent = true,
                     .extent = step.offset,
                     .moment = step.due.value_or(purpose.moment)};
  GEMINID_RETURN_IF_ERROR(CopyNow(copy, buffers_.Of(chunk).id));
  buffers_.GiveBack(chunk);
  Publish(chunk);
  return absl::OkStatus();
}

absl::Status Mover::Forget(uint32_t chunk) {
  Lock lock(mutex_);
  GEMINID_RETURN_IF_ERROR(Await(
      &lock, [&] { return queue_.NoTask(chunk); }, context_.names(chunk),
      [] { return StallCause::kGather; }));
  buffers_.GiveBack(chunk);
  return absl::OkStatus();
}

}  // namespace geminid::zero
