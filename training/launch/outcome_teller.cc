#include "training/launch/outcome_teller.h"

#include <signal.h>

#include <chrono>
#include <utility>

namespace geminid::trainer {

OutcomeTeller::~OutcomeTeller() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void OutcomeTeller::Tell(const MoveOutcome& outcome) {
  const std::lock_guard lock(mutex_);
  if (waiting_.empty() || waiting_.back() != outcome) waiting_.push_back(outcome);
  if (!thread_.joinable()) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for the main thread
    thread_ = std::thread([this] { Run(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  changed_.notify_one();
}

void OutcomeTeller::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return over_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const MoveOutcome outcome = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    TellOne(outcome);
    lock.lock();
  }
}

void OutcomeTeller::TellOne(const MoveOutcome& outcome) {
  constexpr auto kBetweenTries = std::chrono::milliseconds(100);
  const bool is_final = outcome.state != "taken";
  for (int tries = 1;; ++tries) {
    const absl::Status told = call_(outcome);
    if (absl::IsAborted(told)) job_ended_ = true;
    if (!absl::IsUnavailable(told) && !absl::IsDeadlineExceeded(told)) return;
    std::unique_lock lock(mutex_);
    if (tries >= kTries && (over_ || !is_final)) return;
    changed_.wait_for(lock, kBetweenTries, [this] { return over_; });
  }
}

}  // namespace geminid::trainer
