// The descriptor store, in which the next daemon finds this one's sessions, watched: when
// geminid-holder has exited, the daemon starts another one and fills it again.
#ifndef GEMINID_DAEMON_SERVICE_ENTRY_WATCHED_STORE_H_
#define GEMINID_DAEMON_SERVICE_ENTRY_WATCHED_STORE_H_

#include <functional>
#include <memory>
#include <utility>

#include "daemon/holder/descriptor_store.h"
#include "daemon/os/event_loop.h"
#include "daemon/service/watch/vitals.h"

namespace geminid::service {

// Belongs to the event loop's thread.
class WatchedStore {
 public:
  // `loop` and `vitals` outlive it.
  WatchedStore(std::unique_ptr<holder::DescriptorStore> store, os::EventLoop* loop,
               const Vitals* vitals)
      : store_(std::move(store)), loop_(loop), vitals_(vitals) {}

  holder::DescriptorStore* get() const { return store_.get(); }
  // Watches the store from now on. `refill` is called once an empty one has replaced it.
  void Watch(std::function<void()> refill);

 private:
  void WatchAgain();
  void OnEnd();

  const std::unique_ptr<holder::DescriptorStore> store_;
  os::EventLoop* const loop_;
  const Vitals* const vitals_;
  std::function<void()> refill_;
  os::EventLoop::WatchId watch_ = 0;
  int renewals_ = 0;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_ENTRY_WATCHED_STORE_H_
