#include "client/zero/core/move_queue.h"

#include <algorithm>

namespace geminid::zero {

MoveQueue::MoveQueue(std::vector<uint64_t> chunk_bytes) : extents_(chunk_bytes.size()) {
  for (size_t i = 0; i < chunk_bytes.size(); ++i) extents_[i].bytes = chunk_bytes[i];
}

void MoveQueue::Add(Task task) {
  const bool together = task.kind == Task::Kind::kGather ||
                        task.kind == Task::Kind::kGatherToHost || task.kind == Task::Kind::kReduce;
  if (together) task.number = next_number_++;
  ++extents_[task.chunk].tasks;
  queue_.push_back(task);
}

bool MoveQueue::Drop(uint32_t chunk) {
  if (!Settled(chunk)) {
    Add({.kind = Task::Kind::kDrop, .chunk = chunk});
    return false;
  }
  Leave(chunk);
  return true;
}

void MoveQueue::Leave(uint32_t chunk) {
  extents_[chunk].stage = Stage::kLeaving;
  ++extents_[chunk].tasks;
}

bool MoveQueue::NothingLiesIn(uint64_t begin, uint64_t end) const {
  return std::none_of(extents_.begin(), extents_.end(), [&](const Extent& extent) {
    return extent.stage != Stage::kNone && extent.offset < end &&
           begin < extent.offset + extent.bytes;
  });
}

void MoveQueue::Reach(uint64_t point) {
  std::erase_if(closed_, [point](ClosedRange& range) {
    range.points.erase(point);
    return range.points.empty();
  });
}

bool MoveQueue::IsClosed(uint64_t begin, uint64_t end) const {
  return std::any_of(closed_.begin(), closed_.end(), [&](const ClosedRange& range) {
    return range.begin < end && begin < range.end;
  });
}

bool MoveQueue::Clear(uint64_t begin, uint64_t end) const {
  return NothingLiesIn(begin, end) &&
         std::none_of(queue_.begin(), queue_.end(), [&](const Task& task) {
           return TakesExtent(task) && !task.started && task.offset < end &&
                  begin < task.offset + extents_[task.chunk].bytes;
         });
}

std::optional<MoveQueue::Task> MoveQueue::TakeStart(const std::function<bool(uint32_t)>& current) {
  for (Task& task : queue_) {
    if (!TakesExtent(task) || task.started) continue;
    Extent& extent = extents_[task.chunk];
    const bool ready = task.kind == Task::Kind::kOpen || current(task.chunk);
    const uint64_t end = task.offset + extent.bytes;
    if (!ready || extent.stage != Stage::kNone || !NothingLiesIn(task.offset, end) ||
        IsClosed(task.offset, end)) {
      return std::nullopt;
    }
    task.started = true;
    extent.stage = Stage::kCopying;
    extent.offset = task.offset;
    return task;
  }
  return std::nullopt;
}

std::optional<MoveQueue::Task> MoveQueue::TakeFront(const std::function<bool(uint32_t)>& unused,
                                                    const std::function<bool(uint32_t)>& current) {
  if (queue_.empty()) return std::nullopt;
  const Task task = queue_.front();
  Extent& extent = extents_[task.chunk];
  if (TakesExtent(task) && (!task.started || extent.stage != Stage::kCopied)) return std::nullopt;
  if (task.kind == Task::Kind::kGatherToHost && current && !current(task.chunk)) {
    return std::nullopt;
  }
  if ((task.kind == Task::Kind::kReduce || task.kind == Task::Kind::kDrop) &&
      extent.stage != Stage::kResident) {
    return std::nullopt;
  }
  if (task.kind == Task::Kind::kReduce && unused && !unused(task.chunk)) return std::nullopt;
  if (task.kind == Task::Kind::kDrop) extent.stage = Stage::kLeaving;
  queue_.pop_front();
  return task;
}

void MoveQueue::Published(uint32_t chunk) {
  extents_[chunk].stage = Stage::kResident;
  --extents_[chunk].tasks;
}

void MoveQueue::Left(uint32_t chunk) {
  extents_[chunk].stage = Stage::kNone;
  --extents_[chunk].tasks;
}

void MoveQueue::Occupy(uint32_t chunk, uint64_t offset) {
  extents_[chunk].stage = Stage::kCopying;
  extents_[chunk].offset = offset;
  ++extents_[chunk].tasks;
}

bool MoveQueue::Settled(uint32_t chunk) const {
  return extents_[chunk].stage == Stage::kResident && extents_[chunk].tasks == 0;
}

bool MoveQueue::Idle() const {
  return queue_.empty() && std::all_of(extents_.begin(), extents_.end(), [](const Extent& extent) {
           return extent.tasks == 0 &&
                  (extent.stage == Stage::kNone || extent.stage == Stage::kResident);
         });
}

}  // namespace geminid::zero
