#include "client/zero/mover.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "client/src/session_internal.h"
#include "client/zero/extent.h"

namespace geminid::zero {
namespace {

// How often a wait is asked for its cause again.
constexpr std::chrono::milliseconds kStallSlice{20};

}  // namespace

Mover::Mover(MoverContext context) : context_(std::move(context)) {
  const Layout& layout = *context_.layout;
  chunks_.resize(layout.chunks.size());
  for (size_t i = 0; i < chunks_.size(); ++i) {
    chunks_[i].bytes = RoundUpToExtent(layout.chunks[i].elements * element_bytes());
  }
  squares_.resize(layout.granules);
  thread_ = std::thread([this] { Loop(); });
}

Mover::~Mover() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
  // Callbacks of requests still under way use this object.
  Lock lock(mutex_);
  changed_.wait(lock, [this] { return callbacks_pending_ == 0; });
}

// --- asking --------------------------------------------------------------------------------------

void Mover::Gather(uint32_t chunk, std::optional<uint64_t> device_offset, TransferCause cause) {
  {
    std::lock_guard lock(mutex_);
    chunks_[chunk].where = Where::kQueued;
    queue_.push_back({Task::Kind::kGather, chunk, device_offset, cause});
    ++in_motion_;
  }
  changed_.notify_all();
}

void Mover::Reduce(uint32_t chunk, bool first, bool last) {
  {
    std::lock_guard lock(mutex_);
    chunks_[chunk].where = Where::kReducing;
    chunks_[chunk].leaving = true;
    Task task{Task::Kind::kReduce, chunk, std::nullopt, TransferCause::kWriteBack};
    task.first = first;
    task.last = last;
    queue_.push_back(task);
    ++in_motion_;
  }
  changed_.notify_all();
}

void Mover::Drop(uint32_t chunk) {
  {
    std::lock_guard lock(mutex_);
    ++in_motion_;
  }
  ReleaseExtent(chunk);
}

// --- waiting -------------------------------------------------------------------------------------

StallCause Mover::CauseOfWait(uint32_t chunk) const {
  switch (chunks_[chunk].where) {
    case Where::kQueued:
      return context_.weights_current(chunk) ? StallCause::kSpace : StallCause::kUpdate;
    case Where::kCopying:
      return StallCause::kCopy;
    default:
      return StallCause::kGather;
  }
}

// The trainer's thread waits until `done`. What it waits for may change meanwhile, and a daemon
// that takes no requests at all is the cause of whatever does not come.
absl::Status Mover::Wait(const std::function<bool()>& done,
                         const std::function<StallCause()>& cause) {
  Lock lock(mutex_);
  absl::Time since = context_.clock();
  while (status_.ok() && !done()) {
    const StallCause expected = cause();
    const RequestPace before = RequestPaceOf(*context_.session);
    changed_.wait_for(lock, kStallSlice);
    const absl::Time now = context_.clock();
    const bool daemon_stands =
        before.taken != before.sent && RequestPaceOf(*context_.session).taken == before.taken;
    context_.session->AddStall(daemon_stands ? StallCause::kDaemon : expected, now - since);
    since = now;
  }
  return status_;
}

absl::Status Mover::WaitResident(uint32_t chunk) {
  return Wait([&] { return chunks_[chunk].where == Where::kResident; },
              [&] { return CauseOfWait(chunk); });
}

absl::Status Mover::WaitIdle() {
  return Wait([&] { return in_motion_ == 0; }, [] { return StallCause::kReduce; });
}

absl::Status Mover::WaitBelow(uint64_t limit_bytes) {
  const auto leaves_above = [&](const Motion& chunk) {
    return chunk.leaving && chunk.device_offset + chunk.bytes > limit_bytes;
  };
  return Wait([&] { return std::none_of(chunks_.begin(), chunks_.end(), leaves_above); },
              [] { return StallCause::kSpace; });
}

bool Mover::NeedsGather(uint32_t chunk) const {
  std::lock_guard lock(mutex_);
  return chunks_[chunk].where == Where::kAway || chunks_[chunk].where == Where::kReducing;
}

bool Mover::IsResident(uint32_t chunk) const {
  std::lock_guard lock(mutex_);
  return chunks_[chunk].where == Where::kResident;
}

double Mover::GradientSquares() const {
  std::lock_guard lock(mutex_);
  double sum = 0;
  for (double square : squares_) sum += square;
  return sum;
}

void Mover::ClearGradientSquares() {
  std::lock_guard lock(mutex_);
  std::fill(squares_.begin(), squares_.end(), 0.0);
}

double Mover::HostToDeviceBytesPerSecond() const {
  std::lock_guard lock(mutex_);
  const double seconds = absl::ToDoubleSeconds(copying_time_);
  return seconds > 0 ? static_cast<double>(copied_bytes_) / seconds : 0;
}

void Mover::Notify(const absl::Status& status) {
  if (!status.ok()) return Fail(status);
  { std::lock_guard lock(mutex_); }  // a waiter is either before its check or asleep, not between
  changed_.notify_all();
}

void Mover::Fail(const absl::Status& status) {
  {
    std::lock_guard lock(mutex_);
    status_.Update(status);
  }
  changed_.notify_all();
}

absl::Status Mover::status() const {
  std::lock_guard lock(mutex_);
  return status_;
}

// --- the thread ----------------------------------------------------------------------------------

void Mover::Loop() {
  Lock lock(mutex_);
  for (;;) {
    if (stop_ || !status_.ok()) return;
    StartReadyGathers(lock);
    if (queue_.empty()) {
      changed_.wait(lock, [this] { return stop_ || !status_.ok() || !queue_.empty(); });
      continue;
    }
    const Task task = queue_.front();
    if (task.kind == Task::Kind::kGather && chunks_[task.chunk].where != Where::kCopied) {
      // Nothing was ready a moment ago, and the lock was not given up since.
      if (NextReadyGather() == nullptr) changed_.wait(lock);
      continue;
    }
    queue_.pop_front();
    const absl::Status status =
        task.kind == Task::Kind::kGather ? FinishGather(task, lock) : RunReduce(task, lock);
    if (!status.ok()) {
      lock.unlock();
      Fail(status);
      return;
    }
  }
}

Mover::Task* Mover::NextReadyGather() {
  for (Task& task : queue_) {
    if (task.kind != Task::Kind::kGather || task.started) continue;
    // Later ones wait for this one: copies are granted in the order in which they are needed.
    return CanStart(task) ? &task : nullptr;
  }
  return nullptr;
}

bool Mover::CanStart(const Task& task) const {
  const Motion& mine = chunks_[task.chunk];
  if (mine.holds_extent || !context_.weights_current(task.chunk)) return false;
  if (!task.device_offset.has_value()) return true;
  return std::none_of(chunks_.begin(), chunks_.end(), [&](const Motion& other) {
    return other.holds_extent && other.device_offset < *task.device_offset + mine.bytes &&
           *task.device_offset < other.device_offset + other.bytes;
  });
}

void Mover::StartReadyGathers(Lock& lock) {
  for (Task* ready = NextReadyGather(); ready != nullptr; ready = NextReadyGather()) {
    ready->started = true;
    const Task task = *ready;
    Motion& chunk = chunks_[task.chunk];
    chunk.where = Where::kCopying;
    chunk.holds_extent = true;
    chunk.device_offset = task.device_offset.value_or(0);
    chunk.copies_pending =
        context_.store->on_device(task.chunk) ? 1 : context_.layout->chunks[task.chunk].granules;
    callbacks_pending_ += chunk.copies_pending;
    chunk.copies_began = absl::Now();
    context_.meter->AddModel(static_cast<int64_t>(chunk.bytes));
    lock.unlock();
    StartCopies(task);
    lock.lock();
  }
}

void Mover::StartCopies(const Task& task) {
  const auto done = [this, chunk = task.chunk](const absl::Status& status) {
    CopyDone(chunk, status);
  };
  const uint64_t offset = task.device_offset.value_or(kAnyOffset);
  const ChunkId destination = context_.gathered[task.chunk];
  if (context_.store->on_device(task.chunk)) {
    context_.session->AllocateExtent(destination, offset, /*may_evict=*/false).Then(done);
    return;
  }
  const ChunkShape& shape = context_.layout->chunks[task.chunk];
  for (uint32_t g = 0; g < shape.granules; ++g) {
    TransferSpec spec;
    spec.source = context_.store->WeightChunk(shape.first_granule + g);
    spec.destination = destination;
    spec.destination_offset = ShardOffset(task.chunk) + g * granule_bytes();
    spec.bytes = granule_bytes();
    spec.allocate_destination = g == 0;
    spec.device_offset = offset;
    spec.cause = task.cause;
    spec.priority = task.cause == TransferCause::kDemand ? Priority::kUrgent : Priority::kNormal;
    context_.session->Transfer(spec).Then(done);
  }
}

void Mover::CopyDone(uint32_t chunk, const absl::Status& status) {
  if (!status.ok()) Fail(status);
  std::lock_guard lock(mutex_);
  Motion& state = chunks_[chunk];
  if (--state.copies_pending == 0 && status.ok()) {
    state.device_offset = context_.session->DeviceOffset(context_.gathered[chunk]);
    if (state.where == Where::kCopying) state.where = Where::kCopied;
    if (!context_.store->on_device(chunk)) {
      copied_bytes_ += context_.layout->chunks[chunk].granules * granule_bytes();
      copying_time_ += absl::Now() - state.copies_began;
    }
  }
  --callbacks_pending_;
  changed_.notify_all();
}

absl::Status Mover::FinishGather(const Task& task, Lock& lock) {
  ++callbacks_pending_;
  lock.unlock();
  absl::Status status =
      context_.store->on_device(task.chunk) ? CopyShardOnDevice(task.chunk) : absl::OkStatus();
  if (status.ok()) status = AllGather(task.chunk);
  if (status.ok()) {
    context_.session->Publish(context_.gathered[task.chunk])
        .Then([this, chunk = task.chunk](const absl::Status& published) {
          if (!published.ok()) Fail(published);
          std::lock_guard guard(mutex_);
          chunks_[chunk].where = Where::kResident;
          --in_motion_;
          --callbacks_pending_;
          changed_.notify_all();
        });
  }
  lock.lock();
  if (!status.ok()) --callbacks_pending_;
  return status;
}

absl::Status Mover::CopyShardOnDevice(uint32_t chunk) {
  const ChunkShape& shape = context_.layout->chunks[chunk];
  for (uint32_t g = 0; g < shape.granules; ++g) {
    std::memcpy(Shard(chunk) + g * granule_bytes(),
                context_.store->Current(shape.first_granule + g).weight, granule_bytes());
  }
  return absl::OkStatus();
}

absl::Status Mover::AllGather(uint32_t chunk) {
  if (context_.communicator->WorldSize() == 1) return absl::OkStatus();
  const collectives::DType type = collective_type();
  const uint64_t elements = context_.layout->chunks[chunk].elements;
  const uint64_t shard = elements / static_cast<uint64_t>(context_.communicator->WorldSize());
  return context_.communicator->AllGather({Shard(chunk), shard, type},
                                          {Extent(chunk), elements, type});
}

void Mover::ReleaseExtent(uint32_t chunk) {
  {
    std::lock_guard lock(mutex_);
    Motion& motion = chunks_[chunk];
    if (motion.where != Where::kQueued) motion.where = Where::kAway;
    motion.leaving = true;
    ++callbacks_pending_;
  }
  context_.session->Drop(context_.gathered[chunk]).Then([this, chunk](const absl::Status& status) {
    if (!status.ok()) Fail(status);
    std::lock_guard lock(mutex_);
    chunks_[chunk].holds_extent = false;
    chunks_[chunk].leaving = false;
    context_.meter->AddModel(-static_cast<int64_t>(chunks_[chunk].bytes));
    --in_motion_;
    --callbacks_pending_;
    changed_.notify_all();
  });
}

// --- places --------------------------------------------------------------------------------------

uint64_t Mover::ShardOffset(uint32_t chunk) const {
  return static_cast<uint64_t>(context_.communicator->Rank()) *
         context_.layout->chunks[chunk].granules * granule_bytes();
}

std::byte* Mover::Extent(uint32_t chunk) const {
  std::lock_guard lock(mutex_);
  return context_.session->arena() + chunks_[chunk].device_offset;
}

std::byte* Mover::Shard(uint32_t chunk) const { return Extent(chunk) + ShardOffset(chunk); }

}  // namespace geminid::zero
