#include "tools/sim/mover.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace geminid::sim {

using planner::ChunkIndex;

Mover::Mover(MoverContext context) : context_(std::move(context)) {
  for (const planner::Chunk& chunk : process().workload().trace.chunks) {
    chunks_.push_back({.bytes = ExtentBytes(chunk.size_bytes)});
  }
  limit_bytes_ = ExtentBytes(process().workload().trace.arena_bytes);
}

std::string Mover::ChunkName(ChunkIndex chunk) const { return absl::StrCat("chunk ", chunk); }

void Mover::Own(ChunkIndex chunk, Owner from, Owner to) {
  const auto bytes = static_cast<int64_t>(chunks_[chunk].bytes);
  process().observer().ChangeMemory(process().rank(), from, -bytes);
  process().observer().ChangeMemory(process().rank(), to, bytes);
}

// --- asking --------------------------------------------------------------------------------------

void Mover::Gather(const ScheduledLoad& load) {
  chunks_[load.chunk].where = ChunkLocation::kQueued;
  queue_.push_back({.is_gather = true, .load = load});
  ++in_motion_;
  Pump();
}

void Mover::Reduce(ChunkIndex chunk) {
  chunks_[chunk].where = ChunkLocation::kReducing;
  chunks_[chunk].leaving = true;
  Own(chunk, Owner::kWeights, Owner::kLeaving);
  queue_.push_back({.is_gather = false, .load = {.chunk = chunk}});
  ++in_motion_;
  Pump();
}

void Mover::Drop(ChunkIndex chunk) {
  ++in_motion_;
  Release(chunk);
}

void Mover::CopyBack(ChunkIndex chunk) {
  ++in_motion_;
  chunks_[chunk].where = ChunkLocation::kReducing;
  chunks_[chunk].leaving = true;
  Own(chunk, Owner::kWeights, Owner::kLeaving);
  CopyHome(chunk, context_.chunks->weights[chunk], Traced(chunk).transfer_bytes);
}

bool Mover::IsBelow(uint64_t limit_bytes) const {
  if (context_.counts_bytes_only) {
    uint64_t held = 0;
    for (const ChunkStatus& chunk : chunks_) held += chunk.holds_extent ? chunk.bytes : 0;
    return held <= limit_bytes;
  }
  return std::none_of(chunks_.begin(), chunks_.end(), [limit_bytes](const ChunkStatus& chunk) {
    return chunk.leaving && chunk.offset + chunk.bytes > limit_bytes;
  });
}

WaitCause Mover::CauseOfWait(ChunkIndex chunk) const {
  switch (chunks_[chunk].where) {
    case ChunkLocation::kQueued:
      return context_.weights_current(chunk) ? WaitCause::kSpace : WaitCause::kUpdate;
    case ChunkLocation::kCopying:
      return WaitCause::kCopy;
    default:
      return WaitCause::kGather;
  }
}

// --- gathers -------------------------------------------------------------------------------------

bool Mover::CanStart(const Task& task) const {
  const ChunkStatus& mine = chunks_[task.load.chunk];
  if (mine.holds_extent || !context_.weights_current(task.load.chunk)) return false;
  if (context_.counts_bytes_only) {
    uint64_t held = mine.bytes;
    for (const ChunkStatus& chunk : chunks_) held += chunk.holds_extent ? chunk.bytes : 0;
    return held <= limit_bytes_;
  }
  const uint64_t begin = task.load.device_offset;
  return std::none_of(chunks_.begin(), chunks_.end(), [&](const ChunkStatus& other) {
    return other.holds_extent && other.offset < begin + mine.bytes &&
           begin < other.offset + other.bytes;
  });
}

void Mover::Pump() {
  StartGathers();
  RunQueue();
  context_.changed();
}

// Starts gathers in order: copies are granted in the order in which they are needed.
void Mover::StartGathers() {
  for (Task& task : queue_) {
    if (!task.is_gather || task.started) continue;
    if (!CanStart(task)) return;
    task.started = true;
    ChunkStatus& chunk = chunks_[task.load.chunk];
    chunk.where = ChunkLocation::kCopying;
    chunk.holds_extent = true;
    chunk.offset = task.load.device_offset;
    process().observer().ChangeMemory(process().rank(), Owner::kLoading,
                                      static_cast<int64_t>(chunk.bytes));
    StartCopies(task.load);
  }
}

void Mover::StartCopies(const ScheduledLoad& load) {
  const ChunkIndex chunk = load.chunk;
  const auto done = [this, chunk] { CopyDone(chunk); };
  const uint64_t bytes = Traced(chunk).transfer_bytes;
  const core::ChunkId destination = context_.chunks->gathered[chunk];
  if (bytes == 0) {
    chunks_[chunk].copies_pending = 1;
    context_.port->Ask(shm::RequestOp::kAllocateExtent, destination, load.device_offset, done);
    return;
  }
  const uint64_t granule = process().workload().granule_bytes;
  const uint64_t own =
      std::min(static_cast<uint64_t>(process().rank()) * bytes, Traced(chunk).size_bytes - bytes);
  chunks_[chunk].copies_pending = (bytes + granule - 1) / granule;
  for (uint64_t at = 0, g = 0; at < bytes; at += granule, ++g) {
    CopySpec spec;
    spec.source = context_.chunks->weights[chunk][g];
    spec.destination = destination;
    spec.destination_offset = own + at;
    spec.bytes = std::min(granule, bytes - at);
    spec.cause = load.prefetch ? core::TransferCause::kPrefetch : core::TransferCause::kDemand;
    spec.priority = load.prefetch ? core::Priority::kNormal : core::Priority::kUrgent;
    spec.device_offset = load.device_offset;
    spec.name = ChunkName(chunk);
    context_.port->Copy(std::move(spec), done);
  }
}

void Mover::CopyDone(ChunkIndex chunk) {
  if (--chunks_[chunk].copies_pending > 0) return;
  chunks_[chunk].where = ChunkLocation::kCopied;
  Pump();
}

// --- the thread ----------------------------------------------------------------------------------

void Mover::RunQueue() {
  if (thread_busy_ || queue_.empty()) return;
  const Task task = queue_.front();
  const ChunkIndex chunk = task.load.chunk;
  if (task.is_gather && chunks_[chunk].where != ChunkLocation::kCopied) return;
  thread_busy_ = true;
  queue_.pop_front();
  if (task.is_gather) {
    Collective(chunk, "all-gather", [this, chunk] { FinishGather(chunk); });
  } else {
    Collective(chunk, "reduce-scatter", [this, chunk] { FinishReduce(chunk); });
  }
}

// The collective begins when all ranks have arrived and ends when all have done their part.
void Mover::Collective(ChunkIndex chunk, const char* name, std::function<void()> done) {
  const Machine& machine = process().machine();
  if (machine.world_size() == 1) return done();
  const auto end = process().Guard(std::move(done));
  const auto work = process().Guard([this, chunk, name, end] {
    process().Work(
        Track::kCollectives, absl::StrCat(name, " ", ChunkName(chunk)),
        CollectiveSeconds(process().machine(), Traced(chunk).size_bytes), {},
        [this, end] { context_.rendezvous->Arrive(Channel::kMover, process().rank(), end); });
  });
  context_.rendezvous->Arrive(Channel::kMover, process().rank(), work);
}

void Mover::FinishGather(ChunkIndex chunk) {
  thread_busy_ = false;
  context_.port->Ask(shm::RequestOp::kPublish, context_.chunks->gathered[chunk], 0, [this, chunk] {
    chunks_[chunk].where = ChunkLocation::kResident;
    Own(chunk, Owner::kLoading, Owner::kWeights);
    --in_motion_;
    Pump();
  });
  Pump();
}

void Mover::FinishReduce(ChunkIndex chunk) {
  Measure(chunk, [this, chunk] {
    thread_busy_ = false;
    CopyHome(chunk, context_.chunks->gradients[chunk], Traced(chunk).gradient_bytes);
    Pump();
  });
}

void Mover::Measure(ChunkIndex chunk, std::function<void()> done) {
  const double speed = process().machine().measure_bytes_per_second;
  const double shard =
      static_cast<double>(Traced(chunk).size_bytes) / process().machine().world_size();
  if (speed == 0) return done();
  process().Work(Track::kCollectives, absl::StrCat("norm ", ChunkName(chunk)), shard / speed, {},
                 std::move(done));
}

void Mover::CopyHome(ChunkIndex chunk, const std::vector<core::ChunkId>& homes, uint64_t bytes) {
  const uint64_t granule = process().workload().granule_bytes;
  const uint64_t own =
      std::min(static_cast<uint64_t>(process().rank()) * bytes, Traced(chunk).size_bytes - bytes);
  if (bytes == 0) return Release(chunk);
  chunks_[chunk].copies_pending = (bytes + granule - 1) / granule;
  for (uint64_t at = 0, g = 0; at < bytes; at += granule, ++g) {
    CopySpec spec;
    spec.source = context_.chunks->gathered[chunk];
    spec.source_offset = own + at;
    spec.destination = homes[g];
    spec.bytes = std::min(granule, bytes - at);
    spec.cause = core::TransferCause::kWriteBack;
    spec.name = ChunkName(chunk);
    context_.port->Copy(std::move(spec), [this, chunk] {
      if (--chunks_[chunk].copies_pending == 0) Release(chunk);
    });
  }
}

void Mover::Release(ChunkIndex chunk) {
  ChunkStatus& status = chunks_[chunk];
  const Owner owner = status.where == ChunkLocation::kResident ? Owner::kWeights : Owner::kLeaving;
  if (status.where != ChunkLocation::kQueued) status.where = ChunkLocation::kAway;
  status.leaving = true;
  context_.port->Ask(shm::RequestOp::kDrop, context_.chunks->gathered[chunk], 0,
                     [this, chunk, owner] {
                       chunks_[chunk].holds_extent = false;
                       chunks_[chunk].leaving = false;
                       process().observer().ChangeMemory(
                           process().rank(), owner, -static_cast<int64_t>(chunks_[chunk].bytes));
                       --in_motion_;
                       Pump();
                     });
}

}  // namespace geminid::sim
