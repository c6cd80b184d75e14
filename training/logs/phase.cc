#include "training/logs/phase.h"

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/start_thread.h"

namespace geminid::trainer {
namespace {

std::string Describe(const PhaseProgress& far) {
  if (far.of == 0) return "";
  if (far.unit != nullptr) return absl::StrCat(": ", far.done, " of ", far.of, " ", far.unit);
  return absl::StrCat(": ", base::FormatBytes(far.done), " of ", base::FormatBytes(far.of));
}

}  // namespace

Phase::Phase(std::string what, Clock::time_point began, Patience patience)
    : what_(std::move(what)), began_(began), patience_(patience), next_(began + patience.first) {}

std::optional<std::string> Phase::LineAt(Clock::time_point now, const PhaseProgress& far) {
  if (!IsDue(now)) return std::nullopt;
  next_ = now + patience_.then;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - began_).count();
  return absl::StrCat("geminid-train: ", what_, Describe(far), ", ", seconds, " s so far");
}

PhaseTeller::~PhaseTeller() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void PhaseTeller::Begin(std::string what, ReadProgress read_progress) {
  if (!write_) return;
  {
    const std::lock_guard lock(mutex_);
    phase_.reset();
    phase_.emplace(std::move(what), Phase::Clock::now(), patience_);
    read_progress_ = std::move(read_progress);
  }
  if (thread_.joinable()) return changed_.notify_all();
  // Where no thread can be had the run has worse to say.
  if (absl::StatusOr<std::thread> thread = base::StartThread([this] { Run(); }); thread.ok()) {
    thread_ = *std::move(thread);
  }
}

void PhaseTeller::End() {
  const std::lock_guard lock(mutex_);
  phase_.reset();
  read_progress_ = nullptr;
}

void PhaseTeller::Run() {
  std::unique_lock lock(mutex_);
  while (!over_) {
    if (!phase_.has_value()) {
      changed_.wait(lock);
      continue;
    }
    const Phase::Clock::time_point now = Phase::Clock::now();
    if (!phase_->IsDue(now)) {
      changed_.wait_until(lock, phase_->next());
      continue;
    }
    const std::optional<std::string> line =
        phase_->LineAt(now, read_progress_ ? read_progress_() : PhaseProgress());
    lock.unlock();
    write_(*line);
    lock.lock();
  }
}

}  // namespace geminid::trainer
