// The part of the daemon that looks after what keeps its descriptors for a successor.
#include <sys/epoll.h>

#include "absl/strings/str_cat.h"
#include "daemon/os/log.h"
#include "daemon/service/entry/daemon.h"

namespace geminid::service {
namespace {

constexpr int kMostStoreRenewals = 100;

}  // namespace

absl::Status Daemon::OpenStore() {
  if (!options_.open_store) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<holder::DescriptorStore>> store = options_.open_store();
  if (!store.ok()) return store.status();
  store_ = *std::move(store);
  return absl::OkStatus();
}

void Daemon::WatchStore() {
  if (store_ == nullptr || store_->watch_fd() < 0) return;
  absl::StatusOr<os::EventLoop::WatchId> watch =
      loop_->Watch(store_->watch_fd(), EPOLLRDHUP, [this](uint32_t) { OnStoreEnd(); });
  if (watch.ok()) store_watch_ = *watch;
}

void Daemon::OnStoreEnd() {
  loop_->Unwatch(store_watch_);
  if (vitals_.stopping.load()) return;
  // One that cannot live is not started for ever.
  absl::Status renewed = ++store_renewals_ <= kMostStoreRenewals
                             ? store_->Renew()
                             : absl::UnavailableError("it ended too often");
  os::Log(renewed.ok() ? os::LogLevel::kWarning : os::LogLevel::kError,
          "what kept the sessions for this daemon's successor has ended",
          {{"now", renewed.ok() ? "another keeps them"
                                : absl::StrCat("they end with this daemon: ",
                                               std::string(renewed.message()))}});
  if (!renewed.ok()) return;
  WatchStore();
  hub_->KeepAll();
}

}  // namespace geminid::service
