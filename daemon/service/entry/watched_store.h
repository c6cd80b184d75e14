// The descriptor store, in which the next daemon finds this one's sessions, watched: when
// geminid-holder has exited, the daemon starts another one and fills it again.
#ifndef GEMINID_DAEMON_SERVICE_ENTRY_WATCHED_STORE_H_
#define GEMINID_DAEMON_SERVICE_ENTRY_WATCHED_STORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "daemon/holder/descriptor_store.h"
#include "daemon/os/event.h"
#include "daemon/os/event_loop.h"
#include "daemon/service/watch/vitals.h"

namespace geminid::service {

// Belongs to the event loop's thread. It tells `vitals` whether the sessions survive the daemon.
class WatchedStore {
 public:
  using Clock = std::function<int64_t()>;  // monotonic, in nanoseconds

  // `loop` and `vitals` outlive it.
  WatchedStore(std::unique_ptr<holder::DescriptorStore> store, os::EventLoop* loop, Vitals* vitals,
               Clock clock = os::MonotonicNanoseconds);

  holder::DescriptorStore* get() const { return store_.get(); }
  // Watches the store from now on. `refill` is called once an empty one has replaced it.
  void Watch(std::function<void()> refill);

  // Start another store if there is none; the first only after the pause since the last attempt.
  // The pauses grow to a minute.
  void RenewIfDue();
  void RenewNow();
  // When RenewIfDue has something to do; nullopt: there is a store.
  std::optional<int64_t> NextDeadline() const { return due_; }

 private:
  void WatchAgain();
  void OnEnd();
  void Renew();

  const std::unique_ptr<holder::DescriptorStore> store_;
  os::EventLoop* const loop_;
  Vitals* const vitals_;
  const Clock clock_;
  std::function<void()> refill_;
  os::EventLoop::WatchId watch_ = 0;
  std::optional<int64_t> due_;  // set: there is no store
  int64_t begun_;               // when the store did
  int ends_ = 0;                // of stores in a row that lived for less than a minute
  int failures_ = 0;            // attempts in a row
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_ENTRY_WATCHED_STORE_H_
