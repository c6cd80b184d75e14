// Weights on their way to the device, and chunks that make way for others.
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "client/zero/data_types.h"
#include "client/zero/mover.h"

namespace geminid::zero {

uint16_t Mover::DeadlineAt(uint32_t moment) {
  return moment < kNoDeadline ? static_cast<uint16_t>(moment) : kNoDeadline;
}

// By any thread that changed what the next gather may wait for, whatever the mover's own is at: one
// at a time, so that copies are asked for in their order.
void Mover::StartGathers() {
  Lock lock(mutex_);
  if (starting_) return;  // who is there looks again
  starting_ = true;
  while (!stop_ && status_.ok()) {
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
  if (task.within_host) {
    StartCopyWithinHost(task);
  } else if (task.kind == Task::Kind::kOpen || context_.store->on_device(task.chunk)) {
    StartLocally(task);
  } else {
    StartCopies(task);
  }
}

// Nothing crosses the link: the extent is filled on the device.
void Mover::StartLocally(const Task& task) {
  {
    std::lock_guard lock(mutex_);
    copies_pending_[task.chunk] = 1;
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
      CopyDone(task.chunk, /*counted=*/false, 0);
      return absl::OkStatus();
    });
  };
  context_.session->AllocateExtent(context_.gathered[task.chunk], task.offset, /*may_evict=*/true)
      .Then(Later(fill));
}

void Mover::StartCopies(const Task& task) {
  const ChunkShape& shape = Shape(task.chunk);
  const uint32_t copies = shape.granules;
  const uint64_t bytes = copies * shape.granule_bytes();
  {
    std::lock_guard lock(mutex_);
    copies_pending_[task.chunk] = copies;
    link_.Begin(base::MonotonicNow());
  }
  for (uint32_t g = 0; g < copies; ++g) {
    TransferSpec spec;
    spec.source = context_.store->WeightChunk(shape.first_granule + g);
    spec.destination = context_.gathered[task.chunk];
    spec.destination_offset = ShardOffset(task.chunk) + g * shape.granule_bytes();
    spec.bytes = shape.granule_bytes();
    spec.allocate_destination = spec.may_evict = g == 0;
    spec.device_offset = task.offset;
    spec.deadline_moment = DeadlineAt(task.moment);
    spec.cause = task.ahead ? TransferCause::kPrefetch : TransferCause::kDemand;
    spec.priority = task.ahead ? Priority::kNormal : Priority::kUrgent;
    context_.session->Transfer(spec).Then(
        Later([this, chunk = task.chunk, bytes](const absl::Status& status) {
          if (status.ok()) CopyDone(chunk, /*counted=*/true, bytes);
        }));
  }
}

void Mover::CopyDone(uint32_t chunk, bool counted, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  if (--copies_pending_[chunk] > 0) return;
  queue_.Copied(chunk);
  if (counted) link_.End(base::MonotonicNow(), bytes);
}

absl::Status Mover::FinishGather(const Task& task) {
  GEMINID_RETURN_IF_ERROR(AllGather(task, Extent(task.chunk)));
  if (FillsHostShard(task)) {
    PublishWhenKept(task);
  } else {
    Publish(task.chunk);
  }
  return absl::OkStatus();
}

void Mover::Publish(uint32_t chunk) {
  if (const absl::Status shown = ShowView(chunk); !shown.ok()) return Fail(shown);
  {
    std::lock_guard lock(mutex_);
    queue_.Publishing(chunk);
  }
  context_.session->Publish(context_.gathered[chunk])
      .Then(Later([this, chunk](const absl::Status& status) {
        if (status.ok()) Arrive(chunk);
      }));
}

absl::Status Mover::GatherToHost(const Task& task) {
  std::byte* chunk = nullptr;
  {
    std::lock_guard lock(mutex_);
    chunk = kept_[task.chunk];
  }
  if (task.within_host) {
    TakeFromHostShard(task.chunk, chunk);
  } else {
    QueueShardTo(task.chunk, chunk + ShardOffset(task.chunk));
    GEMINID_RETURN_IF_ERROR(compute_->Of(context_.store->on_device(task.chunk)).Finish());
  }
  GEMINID_RETURN_IF_ERROR(AllGather(task, chunk));
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

// So that ranks that went apart never take one chunk for another of the same size.
void Mover::LabelCollective(const Task& task) {
  const std::string label = absl::StrCat("chunk ", LayoutChunk(task.chunk), " in operator ",
                                         task.operation, ", move ", task.number);
  const Group group = GroupOf(task);
  group.ranks->SetLabel(label);
  if (group.device_ranks != nullptr) group.device_ranks->SetLabel(label);
}

Mover::Group Mover::GroupOf(const Task& task) {
  if (!task.within_host) return {context_.communicator, context_.device_communicator, &exchange_};
  HostShards& shards = *context_.host_shards;
  return {&shards.ranks(), shards.device_ranks(), exchange_within_host_.get()};
}

absl::StatusOr<Mover::Ranks> Mover::RanksFor(const Group& group, std::byte* data) {
  std::byte* const there = context_.device->HostAddress(data);
  if (there != nullptr) return Ranks{group.ranks, there};
  if (group.device_ranks == nullptr) return Ranks{};
  GEMINID_RETURN_IF_ERROR(compute_->on_device().Finish());  // what was queued on it
  return Ranks{group.device_ranks, data};
}

absl::Status Mover::AllGather(const Task& task, std::byte* chunk) {
  const Group group = GroupOf(task);
  const auto count = static_cast<uint64_t>(group.ranks->WorldSize());
  if (count == 1) return absl::OkStatus();
  LabelCollective(task);
  const collectives::DType type = DTypeOf(Shape(task.chunk));
  const uint64_t elements = Shape(task.chunk).elements;
  const uint64_t own =
      static_cast<uint64_t>(group.ranks->Rank()) * Shape(task.chunk).bytes() / count;
  GEMINID_ASSIGN_OR_RETURN(const Ranks ranks, RanksFor(group, chunk));
  if (ranks.communicator == nullptr) {
    return group.exchange->AllGather({context_.gathered[task.chunk], chunk, elements, type});
  }
  return ranks.communicator->AllGather({ranks.data + own, elements / count, type},
                                       {ranks.data, elements, type});
}

// --- making way ----------------------------------------------------------------------------------

absl::Status Mover::ToHost(uint32_t chunk) {
  GEMINID_RETURN_IF_ERROR(WaitResident(chunk));
  GEMINID_RETURN_IF_ERROR(WaitUnused(chunk));
  const uint64_t bytes = context_.session->Bytes(context_.gathered[chunk]);
  const absl::StatusOr<ChunkHandle> buffer = buffers_.Take(chunk, bytes);
  if (!buffer.ok()) return buffer.status();
  TransferSpec spec;
  spec.source = context_.gathered[chunk];
  spec.destination = buffer->id;
  spec.bytes = bytes;
  spec.cause = TransferCause::kWriteBack;
  spec.priority = Priority::kUrgent;
  GEMINID_RETURN_IF_ERROR(context_.session->Transfer(spec).Wait(context_.timeout));
  Drop(chunk);
  return absl::OkStatus();
}

absl::Status Mover::ToDevice(const Step& step) {
  const uint32_t chunk = step.chunk;
  {
    Lock lock(mutex_);
    GEMINID_RETURN_IF_ERROR(Await(
        &lock,
        [&] {
          const uint64_t end = step.offset + queue_.bytes(chunk);
          return queue_.NoTask(chunk) && queue_.Clear(step.offset, end) &&
                 !queue_.IsBlocked(step.offset, end);
        },
        "room for " + context_.names(chunk), [] { return StallCause::kSpace; }));
    queue_.Occupy(chunk, step.offset);
    ++usages_[chunk].asked;
  }
  placed_[chunk] = step.offset;
  context_.meter->AddModel(static_cast<int64_t>(queue_.bytes(chunk)));
  TransferSpec spec;
  spec.source = buffers_.Of(chunk).id;
  spec.destination = context_.gathered[chunk];
  spec.bytes = context_.session->Bytes(spec.destination);
  spec.cause = TransferCause::kDemand;
  spec.priority = Priority::kUrgent;
  spec.deadline_moment = DeadlineAt(step.due.value_or(moment_));
  spec.allocate_destination = spec.may_evict = true;
  spec.device_offset = step.offset;
  GEMINID_RETURN_IF_ERROR(context_.session->Transfer(spec).Wait(context_.timeout));
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
