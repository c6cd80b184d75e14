#include "client/zero/values/snapshotter.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/deadline.h"
#include "base/start_thread.h"
#include "base/status_macros.h"
#include "client/zero/basics/caught.h"
#include "client/zero/update/updater.h"

namespace geminid::zero {
Snapshotter::Snapshotter(const Layout& layout, const std::vector<uint64_t>& elements, int rank,
                         const ShardValues& values)
    : layout_(layout),
      values_(values),
      parts_(layout.granules),
      states_(layout.granules, SnapshotState::kDone) {
  for (uint32_t tensor = 0; tensor < elements.size(); ++tensor) {
    for (const ShardPart& part : PartsOfTensor(layout, tensor, elements[tensor], rank)) {
      parts_[part.granule].push_back(part);
    }
  }
}

Snapshotter::~Snapshotter() { Stop(); }

void Snapshotter::Stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    if (running_) status_.Update(absl::CancelledError("the engine ended before the snapshot did"));
  }
  if (thread_.joinable()) thread_.join();
}

absl::Status Snapshotter::Start(uint64_t epoch, std::vector<uint32_t> order, Updater* updater,
                                std::shared_ptr<SnapshotSink> sink) {
  {
    std::lock_guard lock(mutex_);
    if (stop_) return absl::CancelledError("the engine is ending");
    if (running_) {
      return absl::FailedPreconditionError(
          "a snapshot is still being taken; wait for it before starting another");
    }
    epoch_ = epoch;
    sink_ = std::move(sink);
    status_ = absl::OkStatus();
    std::fill(states_.begin(), states_.end(), SnapshotState::kPending);
    running_ = true;
  }
  if (thread_.joinable()) thread_.join();
  absl::StatusOr<std::thread> thread =
      base::StartThread([this, updater, order = std::move(order)] { Run(order, updater); });
  if (thread.ok()) {
    thread_ = *std::move(thread);
    return absl::OkStatus();
  }
  const std::lock_guard lock(mutex_);
  running_ = false;
  sink_.reset();
  return thread.status();
}

void Snapshotter::Run(const std::vector<uint32_t>& order, Updater* updater) {
  std::unique_lock lock(mutex_);
  for (uint32_t chunk : order) {
    lock.unlock();
    const absl::Status updated = updater->WaitCurrent(chunk, absl::InfiniteDuration());
    lock.lock();
    status_.Update(updated);
    if (stop_) break;
    const ChunkShape& shape = layout_.chunks[chunk];
    for (uint32_t g = 0; g < shape.granules; ++g) HandOut(shape.first_granule + g, lock);
  }
  running_ = false;
  sink_.reset();
  lock.unlock();
  changed_.notify_all();
}

// After an error nothing more is handed out, but waiting threads still continue.
void Snapshotter::HandOut(uint32_t granule, std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [&] { return states_[granule] != SnapshotState::kInHand; });
  if (states_[granule] == SnapshotState::kDone) return;
  if (status_.ok()) {
    states_[granule] = SnapshotState::kInHand;
    // Keeps the sink alive if the snapshot is stopped meanwhile.
    const std::shared_ptr<SnapshotSink> sink = sink_;
    lock.unlock();
    const absl::Status given = Give(granule, sink.get());
    lock.lock();
    status_.Update(given);
  }
  states_[granule] = SnapshotState::kDone;
  ++handed_out_;
  changed_.notify_all();
}

absl::Status Snapshotter::Give(uint32_t granule, SnapshotSink* sink) {
  std::vector<float> values;
  // Two threads call this: the snapshot's and the updater's.
  const std::unique_lock<std::mutex> turn = values_.LockDisk();
  for (const ShardPart& part : parts_[granule]) {
    values.resize(part.elements);
    for (StateKind kind : kStateKinds) {
      if (!values_.Has(granule, kind)) continue;
      GEMINID_RETURN_IF_ERROR(values_.Read(part, kind, values));
      GEMINID_RETURN_IF_ERROR(Caught("the snapshot's sink", [&] {
        return sink->Write(ParameterId{part.tensor}, kind, part.tensor_offset, values);
      }));
    }
  }
  return absl::OkStatus();
}

absl::Status Snapshotter::Wait(absl::Duration timeout) {
  std::unique_lock lock(mutex_);
  while (running_) {
    const uint64_t before = handed_out_;
    const auto deadline = base::Deadline::In(timeout);
    const bool moved = changed_.wait_until(lock, deadline.time(),
                                           [&] { return !running_ || handed_out_ != before; });
    if (!moved) {
      return absl::DeadlineExceededError(absl::StrCat(
          "the snapshot made no progress for ", absl::FormatDuration(timeout), ", after ", before,
          " parts: its sink does not return, or the update of ", "the next part does not end"));
    }
  }
  return status_;
}

void Snapshotter::BeforeUpdate(uint32_t granule, uint64_t epoch) {
  std::unique_lock lock(mutex_);
  if (!running_ || epoch <= epoch_) return;
  HandOut(granule, lock);
}

}  // namespace geminid::zero
