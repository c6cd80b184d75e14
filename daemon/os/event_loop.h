// One thread that waits for many descriptors and calls the callback of each.
#ifndef GEMINID_DAEMON_OS_EVENT_LOOP_H_
#define GEMINID_DAEMON_OS_EVENT_LOOP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace geminid::os {

// All methods but Post belong to the loop's own thread. A callback may watch and unwatch anything,
// itself included.
class EventLoop {
 public:
  // Names one watched descriptor. Never reused, so that a late event cannot reach a new watch of
  // the same descriptor number. 0 is none.
  using WatchId = uint64_t;
  // `events` are those of epoll.
  using Callback = std::function<void(uint32_t events)>;

  static absl::StatusOr<std::unique_ptr<EventLoop>> Create();

  // `fd` must stay open until Unwatch.
  absl::StatusOr<WatchId> Watch(int fd, uint32_t events, Callback callback);
  absl::Status Change(WatchId id, uint32_t events);
  void Unwatch(WatchId id);

  // Waits up to `timeout_milliseconds` (-1: for ever) for events, and calls their callbacks and the
  // posted functions.
  void RunOnce(int timeout_milliseconds);
  // The same until a moment of the monotonic clock; nullopt: for ever.
  void RunUntil(std::optional<int64_t> deadline_nanoseconds);

  // Calls `on_awake` after each wait, before anything else.
  void OnAwake(std::function<void()> on_awake) { on_awake_ = std::move(on_awake); }

  // Runs `function` on the loop's thread soon. Any thread. What is posted after the last RunOnce is
  // dropped.
  void Post(std::function<void()> function);

 private:
  struct Watched {
    int fd;
    std::shared_ptr<Callback> callback;  // shared: it may unwatch itself while it runs
  };

  EventLoop(base::UniqueFd epoll, base::UniqueFd posted)
      : epoll_(std::move(epoll)), posted_event_(std::move(posted)) {}
  void RunPosted();

  base::UniqueFd epoll_;
  base::UniqueFd posted_event_;
  std::function<void()> on_awake_;
  WatchId next_id_ = 1;
  std::unordered_map<WatchId, Watched> watched_;
  std::mutex mutex_;
  std::vector<std::function<void()>> posted_;  // guarded by mutex_
};

}  // namespace geminid::os

#endif  // GEMINID_DAEMON_OS_EVENT_LOOP_H_
