#include "client/zero/update/updater.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/deadline.h"
#include "base/start_thread.h"
#include "base/status_macros.h"
#include "client/zero/basics/crash_points.h"

namespace geminid::zero {
Updater::Updater(const Layout& layout, const GranuleOptimizer& optimizer, StateStore* store,
                 std::unique_ptr<kernels::ThreadPool> pool,
                 std::function<void(absl::Status)> on_chunk_updated,
                 std::function<void(uint32_t granule, uint64_t epoch)> before_update,
                 std::unique_ptr<UpdatesAhead> ahead)
    : layout_(layout),
      optimizer_(optimizer),
      store_(store),
      pool_(std::move(pool)),
      calls_{std::move(on_chunk_updated), std::move(before_update)},
      ahead_(std::move(ahead)),
      missing_(layout.chunks.size()) {}

absl::StatusOr<std::unique_ptr<Updater>> Updater::Create(
    const Layout& layout, const GranuleOptimizer& optimizer, StateStore* store,
    std::unique_ptr<kernels::ThreadPool> pool, std::function<void(absl::Status)> on_chunk_updated,
    std::function<void(uint32_t granule, uint64_t epoch)> before_update,
    std::unique_ptr<UpdatesAhead> ahead) {
  std::unique_ptr<Updater> updater(new Updater(layout, optimizer, store, std::move(pool),
                                               std::move(on_chunk_updated),
                                               std::move(before_update), std::move(ahead)));
  GEMINID_ASSIGN_OR_RETURN(updater->thread_,
                           base::StartThread([raw = updater.get()] { raw->Loop(); }));
  return updater;
}

Updater::~Updater() { Stop(); }

void Updater::Stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Updater::Abandon() {
  {
    std::lock_guard lock(mutex_);
    const bool whole = std::ranges::all_of(missing_, [](uint32_t missing) { return missing == 0; });
    if (whole) return;
    status_.Update(absl::CancelledError("the engine ended while a step was being updated"));
  }
  wake_.notify_all();
}

void Updater::Start(uint64_t epoch, const std::vector<uint32_t>& order) {
  {
    std::lock_guard lock(mutex_);
    epoch_ = epoch;
    for (uint32_t chunk : order) {
      const ChunkShape& shape = layout_.chunks[chunk];
      missing_[chunk] = shape.granules;
      for (uint32_t g = 0; g < shape.granules; ++g) {
        queue_.push_back({.chunk = chunk, .granule = shape.first_granule + g});
      }
    }
  }
  wake_.notify_all();
}

void Updater::BeginStep(uint64_t epoch) {
  std::lock_guard lock(mutex_);
  epoch_ = epoch;
}

void Updater::Expect(uint32_t chunk) {
  std::lock_guard lock(mutex_);
  missing_[chunk] = layout_.chunks[chunk].granules;
}

void Updater::Add(uint32_t chunk, uint32_t granule, std::function<void()> done) {
  {
    std::lock_guard lock(mutex_);
    if (stop_) return;
    queue_.push_back({chunk, granule, std::move(done)});
  }
  wake_.notify_all();
}

bool Updater::IsCurrent(uint32_t chunk) const {
  std::lock_guard lock(mutex_);
  return !IsMissing(chunk);
}

absl::Status Updater::Await(std::unique_lock<std::mutex>* lock, absl::Duration timeout,
                            const std::function<bool()>& ready) {
  while (!ready() && status_.ok()) {
    const uint64_t before = updated_;
    const auto deadline = base::Deadline::In(timeout);
    wake_.wait_until(*lock, deadline.time(),
                     [&] { return updated_ != before || ready() || !status_.ok(); });
    if (updated_ != before || ready() || !status_.ok()) continue;
    const std::string what = queue_.empty() ? "" : absl::StrCat(" of chunk ", queue_.front().chunk);
    return absl::DeadlineExceededError(absl::StrCat("the update", what, " made no progress within ",
                                                    absl::FormatDuration(timeout)));
  }
  return status_;
}

absl::Status Updater::WaitIdle(absl::Duration timeout) {
  std::unique_lock lock(mutex_);
  return Await(&lock, timeout, [this] { return queue_.empty(); });
}

absl::Status Updater::WaitCurrent(uint32_t chunk, absl::Duration timeout) {
  std::unique_lock lock(mutex_);
  return Await(&lock, timeout, [this, chunk] { return !IsMissing(chunk); });
}

void Updater::Loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stop_ || (!queue_.empty() && status_.ok()); });
    if (queue_.empty() || !status_.ok()) return;  // stopping, with nothing left to do; or failed
    const std::vector<uint32_t> coming = TakeComing();
    const Item item = queue_.front();
    const uint64_t epoch = epoch_;
    lock.unlock();
    for (const uint32_t granule : coming) {
      calls_.before_update(granule, epoch);
      ahead_->Add(granule);
    }
    const absl::Status status = UpdateGranule(item.granule, epoch);
    lock.lock();
    status_.Update(status);
    if (status.ok()) --missing_[item.chunk];
    const bool tell = !status.ok() || !IsMissing(item.chunk);
    queue_.pop_front();
    ++updated_;
    lock.unlock();
    wake_.notify_all();
    if (status.ok() && item.done) item.done();
    if (tell) calls_.on_chunk_updated(status);
    lock.lock();
  }
}

// All queued granules belong to one step. State is fetched also while granules are updated that
// need no fetch.
std::vector<uint32_t> Updater::TakeComing() {
  std::vector<uint32_t> coming;
  if (ahead_ == nullptr) return coming;
  size_t fetched = 0;
  for (auto item = queue_.begin(); item != queue_.end() && fetched < kPlacesAhead; ++item) {
    if (!IsFetched(item->granule)) continue;
    ++fetched;
    if (!std::exchange(item->coming, true)) coming.push_back(item->granule);
  }
  return coming;
}

absl::Status Updater::MakeVersion(uint32_t granule, uint64_t epoch) {
  if (IsFetched(granule)) return ahead_->FinishFirst(epoch, pool_.get());
  calls_.before_update(granule, epoch);
  // The pool may still work on a slice of a later granule.
  if (ahead_ != nullptr) GEMINID_RETURN_IF_ERROR(ahead_->WaitUpdates());
  return optimizer_.Update(granule, *store_, pool_.get());
}

absl::Status Updater::UpdateGranule(uint32_t granule, uint64_t epoch) {
  GEMINID_RETURN_IF_ERROR(MakeVersion(granule, epoch));
  CrashPoint("granule written");
  store_->Flip(granule, epoch);
  CrashPoint("granule flipped");
  return absl::OkStatus();
}

}  // namespace geminid::zero
