#include "daemon/service/entry/watched_store.h"

#include <sys/epoll.h>

#include <algorithm>
#include <string>
#include <utility>

#include "daemon/os/log.h"

namespace geminid::service {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kLongestPause = 60 * kSecond;
// A store that lived for so long did not end because of its start.
constexpr int64_t kLongLife = 60 * kSecond;
// So many stores that live for less than that are replaced at once; others after a pause, because a
// holder that always exits would cost the daemon a process after the other.
constexpr int kReplacedAtOnce = 10;

// 1 s after the first failure, then 2 s, 4 s, up to a minute.
int64_t PauseAfter(int failures) {
  constexpr int kMostDoublings = 6;
  return std::min(kSecond << std::clamp(failures - 1, 0, kMostDoublings), kLongestPause);
}

}  // namespace

WatchedStore::WatchedStore(std::unique_ptr<holder::DescriptorStore> store, os::EventLoop* loop,
                           Vitals* vitals, Clock clock)
    : store_(std::move(store)),
      loop_(loop),
      vitals_(vitals),
      clock_(std::move(clock)),
      begun_(clock_()) {
  const bool stores = dynamic_cast<const holder::NoStore*>(store_.get()) == nullptr;
  vitals_->survival.store(stores ? SessionSurvival::kAssured : SessionSurvival::kLost);
}

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
  vitals_->survival.store(SessionSurvival::kLost);
  const int64_t now = clock_();
  ends_ = now - begun_ >= kLongLife ? 1 : ends_ + 1;
  failures_ = 0;
  due_ = ends_ <= kReplacedAtOnce ? now : now + PauseAfter(ends_ - kReplacedAtOnce);
  os::Log(os::LogLevel::kWarning,
          "geminid-holder, which keeps the sessions for the next daemon, has exited");
  RenewIfDue();
}

void WatchedStore::RenewIfDue() {
  if (due_.has_value() && clock_() >= *due_) Renew();
}

void WatchedStore::RenewNow() {
  if (due_.has_value()) Renew();
}

void WatchedStore::Renew() {
  const absl::Status renewed = store_->Renew();
  const int64_t now = clock_();
  if (!renewed.ok()) {
    due_ = now + PauseAfter(++failures_);
    os::Log(
        failures_ == 1 ? os::LogLevel::kError : os::LogLevel::kDebug,
        "geminid-holder cannot be started: if this daemon dies, its sessions end",
        {{"error", std::string(renewed.message())},
         {"advice", "the daemon tries again, at the latest every minute; SIGHUP has it try now"}});
    return;
  }
  due_.reset();
  failures_ = 0;
  begun_ = now;
  vitals_->survival.store(SessionSurvival::kAssured);
  os::Log(os::LogLevel::kWarning, "another geminid-holder keeps the sessions for the next daemon");
  WatchAgain();
  refill_();
}

}  // namespace geminid::service
