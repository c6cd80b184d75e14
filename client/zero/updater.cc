#include "client/zero/updater.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/deadline.h"
#include "client/zero/crash_points.h"

namespace geminid::zero {
Updater::Updater(const Layout& layout, const GranuleOptimizer& optimizer, StateStore* store,
                 std::unique_ptr<kernels::ThreadPool> pool,
                 std::function<void(absl::Status)> on_chunk_updated,
                 std::function<void(uint32_t granule, uint64_t epoch)> before_update)
    : layout_(layout),
      optimizer_(optimizer),
      store_(store),
      pool_(std::move(pool)),
      on_chunk_updated_(std::move(on_chunk_updated)),
      before_update_(std::move(before_update)),
      current_(layout.chunks.size(), true) {
  thread_ = std::thread([this] { Loop(); });
}

Updater::~Updater() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Updater::Start(uint64_t epoch, const std::vector<uint32_t>& order) {
  {
    std::lock_guard lock(mutex_);
    epoch_ = epoch;
    queue_ = order;
    next_ = 0;
    for (uint32_t chunk : order) current_[chunk] = false;
  }
  wake_.notify_all();
}

bool Updater::IsCurrent(uint32_t chunk) const {
  std::lock_guard lock(mutex_);
  return current_[chunk];
}

absl::Status Updater::WaitIdle(absl::Duration timeout) {
  std::unique_lock lock(mutex_);
  while (next_ < queue_.size() && status_.ok()) {
    const size_t before = next_;
    const auto deadline = base::Deadline::In(timeout);
    wake_.wait_until(lock, deadline.time(), [&] { return next_ != before || !status_.ok(); });
    if (next_ == before && status_.ok()) {
      return absl::DeadlineExceededError(absl::StrCat("the update of chunk ", queue_[next_],
                                                      " has not ended within ",
                                                      absl::FormatDuration(timeout)));
    }
  }
  return status_;
}

absl::Status Updater::WaitCurrent(uint32_t chunk) {
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [this, chunk] { return current_[chunk] || !status_.ok(); });
  return status_;
}

void Updater::Loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stop_ || (next_ < queue_.size() && status_.ok()); });
    if (next_ == queue_.size() || !status_.ok()) return;  // stopping, and nothing left to do
    const uint32_t chunk = queue_[next_];
    const uint64_t epoch = epoch_;
    lock.unlock();
    absl::Status status = UpdateChunk(chunk, epoch);
    lock.lock();
    status_.Update(status);
    current_[chunk] = status.ok();
    ++next_;
    lock.unlock();
    wake_.notify_all();
    on_chunk_updated_(status);
    lock.lock();
  }
}

absl::Status Updater::UpdateChunk(uint32_t chunk, uint64_t epoch) {
  const ChunkShape& shape = layout_.chunks[chunk];
  for (uint32_t g = 0; g < shape.granules; ++g) {
    const uint32_t granule = shape.first_granule + g;
    before_update_(granule, epoch);
    absl::Status status = optimizer_.Update(granule, *store_, pool_.get());
    if (!status.ok()) return status;
    CrashPoint("granule written");
    store_->Flip(granule, epoch);
    CrashPoint("granule flipped");
  }
  return absl::OkStatus();
}

}  // namespace geminid::zero
