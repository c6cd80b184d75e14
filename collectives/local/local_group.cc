#include "collectives/local/local_group.h"

#include <algorithm>

#include "collectives/failure.h"

namespace geminid::collectives {
namespace {

std::chrono::steady_clock::time_point DeadlineIn(absl::Duration timeout) {
  // A century is practically infinite; InfiniteDuration() would overflow steady_clock.
  constexpr absl::Duration kForEver = absl::Hours(24 * 365 * 100);
  return std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(std::min(timeout, kForEver));
}

}  // namespace

LocalGroup::LocalGroup(int world_size)
    : world_size_(world_size),
      buffers_(static_cast<size_t>(world_size)),
      meetings_(static_cast<size_t>(world_size), 0),
      partings_(static_cast<size_t>(world_size), 0),
      left_(static_cast<size_t>(world_size), false),
      shrinking_(static_cast<size_t>(world_size), false),
      mailboxes_(static_cast<size_t>(world_size) * static_cast<size_t>(world_size)) {}

void LocalGroup::Post(int rank, const SharedBuffers& buffers) {
  std::lock_guard lock(mutex_);
  buffers_[static_cast<size_t>(rank)] = buffers;
}

absl::Status LocalGroup::Meet(int rank, const Operation& operation, absl::Duration timeout) {
  const auto deadline = DeadlineIn(timeout);
  std::unique_lock lock(mutex_);
  const uint64_t meeting = ++meetings_[static_cast<size_t>(rank)];
  changed_.notify_all();
  for (;;) {
    std::vector<int> absent;
    for (int r = 0; r < world_size_; ++r) {
      if (meetings_[static_cast<size_t>(r)] < meeting) absent.push_back(r);
    }
    if (absent.empty()) return absl::OkStatus();
    if (!failure_.ok()) return failure_;
    for (int r : absent) {
      if (left_[static_cast<size_t>(r)]) return FailLocked(LeftError(r));
    }
    if (std::chrono::steady_clock::now() >= deadline) {
      return FailLocked(TimeoutError(operation, absent, rank, timeout));
    }
    changed_.wait_until(lock, deadline);
  }
}

void LocalGroup::Part(int rank) {
  std::unique_lock lock(mutex_);
  const uint64_t parting = ++partings_[static_cast<size_t>(rank)];
  changed_.notify_all();
  changed_.wait(lock, [&] {
    return std::all_of(partings_.begin(), partings_.end(),
                       [&](uint64_t parted) { return parted >= parting; });
  });
}

void LocalGroup::PostMessage(int from, int to, PostedMessage* message) {
  std::lock_guard lock(mutex_);
  Mailbox(from, to).push_back(message);
  changed_.notify_all();
}

absl::Status LocalGroup::TakeMessage(int from, int to, const Operation& operation,
                                     absl::Duration timeout, PostedMessage** message) {
  const auto deadline = DeadlineIn(timeout);
  std::unique_lock lock(mutex_);
  for (;;) {
    if (!failure_.ok()) return failure_;
    auto& mailbox = Mailbox(from, to);
    if (!mailbox.empty()) {
      *message = mailbox.front();
      mailbox.pop_front();
      (*message)->state = PostedMessageState::kTaken;
      return absl::OkStatus();
    }
    if (left_[static_cast<size_t>(from)]) return FailLocked(LeftError(from));
    if (std::chrono::steady_clock::now() >= deadline) {
      const int absent[] = {from};
      return FailLocked(TimeoutError(operation, absent, to, timeout));
    }
    changed_.wait_until(lock, deadline);
  }
}

void LocalGroup::FinishMessage(PostedMessage* message) {
  std::lock_guard lock(mutex_);
  message->state = PostedMessageState::kDone;
  changed_.notify_all();
}

absl::Status LocalGroup::AwaitMessage(int from, int to, PostedMessage* message,
                                      absl::Duration timeout) {
  const auto deadline = DeadlineIn(timeout);
  std::unique_lock lock(mutex_);
  while (message->state != PostedMessageState::kDone) {
    // A receiver that is copying ends soon, and its source must not be freed meanwhile.
    if (message->state == PostedMessageState::kTaken) {
      changed_.wait(lock);
      continue;
    }
    absl::Status status = failure_;
    if (status.ok() && left_[static_cast<size_t>(to)]) status = FailLocked(LeftError(to));
    if (status.ok() && std::chrono::steady_clock::now() >= deadline) {
      const int absent[] = {to};
      status = FailLocked(TimeoutError(message->operation, absent, from, timeout));
    }
    if (!status.ok()) {
      std::erase(Mailbox(from, to), message);
      return status;
    }
    changed_.wait_until(lock, deadline);
  }
  return absl::OkStatus();
}

absl::Status LocalGroup::Fail(const absl::Status& status) {
  std::lock_guard lock(mutex_);
  return FailLocked(status);
}

absl::Status LocalGroup::FailLocked(const absl::Status& status) {
  if (failure_.ok()) {
    failure_ = status;
    changed_.notify_all();
  }
  return failure_;
}

absl::Status LocalGroup::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

void LocalGroup::Leave(int rank) {
  std::lock_guard lock(mutex_);
  left_[static_cast<size_t>(rank)] = true;
  changed_.notify_all();
}

absl::StatusOr<LocalGroup::Remainder> LocalGroup::Shrink(int rank, absl::Duration timeout) {
  const auto deadline = DeadlineIn(timeout);
  std::unique_lock lock(mutex_);
  shrinking_[static_cast<size_t>(rank)] = true;
  changed_.notify_all();
  while (remainder_.group == nullptr) {
    std::vector<int> absent, here;
    for (int r = 0; r < world_size_; ++r) {
      const auto i = static_cast<size_t>(r);
      if (shrinking_[i]) {
        here.push_back(r);
      } else if (!left_[i]) {
        absent.push_back(r);
      }
    }
    if (absent.empty()) {
      remainder_ = {std::make_shared<LocalGroup>(static_cast<int>(here.size())), here};
      changed_.notify_all();
    } else if (std::chrono::steady_clock::now() >= deadline) {
      shrinking_[static_cast<size_t>(rank)] = false;
      return ShrinkTimeoutError(absent, rank, timeout);
    } else {
      changed_.wait_until(lock, deadline);
    }
  }
  return remainder_;
}

std::shared_ptr<LocalGroup> LocalGroup::Subset(const std::string& key, int members) {
  std::lock_guard lock(mutex_);
  PendingSubset& pending = subsets_[key];
  if (pending.group == nullptr) {
    pending.group = std::make_shared<LocalGroup>(members);
    pending.missing = members;
  }
  std::shared_ptr<LocalGroup> group = pending.group;
  if (--pending.missing == 0) subsets_.erase(key);
  return group;
}

}  // namespace geminid::collectives
