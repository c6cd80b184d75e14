#include "daemon/os/event_loop.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>

#include "base/system_error.h"
#include "daemon/os/event.h"

namespace geminid::os {
namespace {

// One wait handles at most this many events; the kernel hands the rest to the next, in turn.
constexpr int kEventsPerWait = 64;
constexpr int64_t kNanosecondsPerMillisecond = 1'000'000;
constexpr int64_t kLongestMilliseconds = 3'600'000;

}  // namespace

absl::StatusOr<std::unique_ptr<EventLoop>> EventLoop::Create() {
  base::UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return base::SystemError(errno, "epoll_create1", "the event loop");
  absl::StatusOr<base::UniqueFd> posted = CreateEvent();
  if (!posted.ok()) return posted.status();
  std::unique_ptr<EventLoop> loop(new EventLoop(std::move(epoll), *std::move(posted)));
  absl::StatusOr<WatchId> id =
      loop->Watch(loop->posted_event_.get(), EPOLLIN, [raw = loop.get()](uint32_t) {
        Clear(raw->posted_event_);
        raw->RunPosted();
      });
  if (!id.ok()) return id.status();
  return loop;
}

absl::StatusOr<EventLoop::WatchId> EventLoop::Watch(int fd, uint32_t events, Callback callback) {
  const WatchId id = next_id_++;
  epoll_event event = {};
  event.events = events;
  event.data.u64 = id;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return base::SystemError(errno, "epoll_ctl", "a watched descriptor");
  }
  watched_[id] = {fd, std::make_shared<Callback>(std::move(callback))};
  return id;
}

absl::Status EventLoop::Change(WatchId id, uint32_t events) {
  const auto found = watched_.find(id);
  if (found == watched_.end()) return absl::NotFoundError("no such watch");
  epoll_event event = {};
  event.events = events;
  event.data.u64 = id;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, found->second.fd, &event) != 0) {
    return base::SystemError(errno, "epoll_ctl", "a watched descriptor");
  }
  return absl::OkStatus();
}

void EventLoop::Unwatch(WatchId id) {
  const auto found = watched_.find(id);
  if (found == watched_.end()) return;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, found->second.fd, nullptr);
  watched_.erase(found);
}

void EventLoop::RunOnce(int timeout_milliseconds) {
  std::array<epoll_event, kEventsPerWait> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), kEventsPerWait, timeout_milliseconds);
  if (on_awake_) on_awake_();
  for (int i = 0; i < count; ++i) {
    // An earlier callback of this round may have ended this watch.
    const auto found = watched_.find(events[i].data.u64);
    if (found == watched_.end()) continue;
    const std::shared_ptr<Callback> callback = found->second.callback;
    (*callback)(events[i].events);
  }
}

void EventLoop::RunUntil(std::optional<int64_t> deadline_nanoseconds) {
  if (!deadline_nanoseconds.has_value()) return RunOnce(-1);
  const int64_t wait = std::max<int64_t>(0, *deadline_nanoseconds - MonotonicNanoseconds());
  // Rounded up, or the last part of a millisecond would be spent spinning.
  RunOnce(static_cast<int>(std::min(
      kLongestMilliseconds, (wait + kNanosecondsPerMillisecond - 1) / kNanosecondsPerMillisecond)));
}

void EventLoop::Post(std::function<void()> function) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    posted_.push_back(std::move(function));
  }
  Signal(posted_event_);
}

void EventLoop::RunPosted() {
  std::vector<std::function<void()>> functions;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    functions.swap(posted_);
  }
  for (const std::function<void()>& function : functions) function();
}

}  // namespace geminid::os
