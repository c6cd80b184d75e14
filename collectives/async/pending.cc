#include "geminid/pending.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/deadline.h"
#include "collectives/async/pending_state.h"

namespace geminid {

void Pending::State::Complete(absl::Status status) {
  std::unique_lock lock(mutex_);
  status_ = std::move(status);
  ready_ = true;
  changed_.notify_all();
  if (callback_ == nullptr) return;
  std::function<void()> call = [callback = std::exchange(callback_, nullptr), outcome = status_] {
    callback(outcome);
  };
  lock.unlock();
  executor_->Run(std::move(call));
}

bool Pending::State::ready() const {
  const std::lock_guard lock(mutex_);
  return ready_;
}

absl::Status Pending::State::Wait(absl::Duration timeout) const {
  const auto deadline = base::Deadline::In(timeout);
  std::unique_lock lock(mutex_);
  if (changed_.wait_until(lock, deadline.time(), [this] { return ready_; })) return status_;
  return absl::DeadlineExceededError(absl::StrCat("the request was not complete within ",
                                                  absl::FormatDuration(timeout),
                                                  "; the request continues, so wait again"));
}

void Pending::State::Then(Callback callback) {
  {
    const std::lock_guard lock(mutex_);
    if (!ready_) {
      callback_ = std::move(callback);
      return;
    }
  }
  callback(status_);
}

Pending::Pending(absl::Status status) {
  if (status.ok()) return;
  state_ = std::make_shared<State>(nullptr);
  state_->Complete(std::move(status));
}

Pending::Pending(std::shared_ptr<State> state) : state_(std::move(state)) {}

bool Pending::ready() const { return state_ == nullptr || state_->ready(); }

absl::Status Pending::Wait(absl::Duration timeout) const {
  return state_ == nullptr ? absl::OkStatus() : state_->Wait(timeout);
}

void Pending::Then(std::function<void(const absl::Status&)> callback) {
  if (state_ == nullptr) {
    callback(absl::OkStatus());
  } else {
    state_->Then(std::move(callback));
  }
}

}  // namespace geminid
