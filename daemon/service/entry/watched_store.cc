#include "daemon/service/entry/watched_store.h"

#include <sys/epoll.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "daemon/os/log.h"

namespace geminid::service {
namespace {

constexpr int kMostRenewals = 100;

}  // namespace

void WatchedStore::Watch(std::function<void()> refill) {
  refill_ = std::move(refill);
  WatchAgain();
}

void WatchedStore::WatchAgain() {
  if (store_->watch_fd() < 0) return;
  absl::StatusOr<os::EventLoop::WatchId> watch =
      loop_->Watch(store_->watch_fd(), EPOLLRDHUP, [this](uint32_t) { OnEnd(); });
  if (watch.ok()) watch_ = *watch;
}

void WatchedStore::OnEnd() {
  loop_->Unwatch(watch_);
  if (vitals_->stopping.load()) return;
  // A holder that always exits is not started for ever.
  absl::Status renewed = ++renewals_ <= kMostRenewals
                             ? store_->Renew()
                             : absl::UnavailableError("geminid-holder exited too often");
  os::Log(renewed.ok() ? os::LogLevel::kWarning : os::LogLevel::kError,
          "geminid-holder, which keeps the sessions for the next daemon, has exited",
          {{"now", renewed.ok() ? "another one keeps them"
                                : absl::StrCat("the sessions end with this daemon: ",
                                               std::string(renewed.message()))}});
  if (!renewed.ok()) return;
  WatchAgain();
  refill_();
}

}  // namespace geminid::service
