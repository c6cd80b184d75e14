#include "daemon/os/acceptor.h"

#include <sys/epoll.h>
#include <sys/resource.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "daemon/os/event.h"
#include "daemon/os/log.h"
#include "daemon/os/unix_socket.h"

namespace geminid::os {
namespace {

constexpr int kAcceptsPerEvent = 64;
// When no descriptor is left for a connection, trying again at once would only spin.
constexpr int64_t kPauseNanoseconds = 100'000'000;

}  // namespace

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Create(base::UniqueFd listener,
                                                           std::string name, EventLoop* loop,
                                                           OnConnection on_connection) {
  std::unique_ptr<Acceptor> acceptor(
      new Acceptor(std::move(listener), std::move(name), loop, std::move(on_connection)));
  if (absl::Status status = acceptor->Watch(); !status.ok()) return status;
  return acceptor;
}

Acceptor::~Acceptor() { loop_->Unwatch(watch_); }

absl::Status Acceptor::Watch() {
  absl::StatusOr<EventLoop::WatchId> watch =
      loop_->Watch(listener_.get(), EPOLLIN, [this](uint32_t) { AcceptSome(); });
  if (!watch.ok()) return watch.status();
  watch_ = *watch;
  return absl::OkStatus();
}

void Acceptor::AcceptSome() {
  for (int i = 0; i < kAcceptsPerEvent; ++i) {
    absl::StatusOr<base::UniqueFd> connection = Accept(listener_);
    if (!connection.ok()) return Pause(connection.status());
    if (!connection->valid()) return;
    if (std::exchange(told_, false)) {
      Log(LogLevel::kWarning, "connections are accepted again", {{"at", name_}});
    }
    on_connection_(*std::move(connection));
  }
}

void Acceptor::Pause(const absl::Status& why) {
  if (!std::exchange(told_, true)) {
    Log(LogLevel::kError, "no connections are accepted for a while",
        {{"at", name_}, {"error", std::string(why.message())}});
  }
  loop_->Unwatch(std::exchange(watch_, 0));
  again_at_ = MonotonicNanoseconds() + kPauseNanoseconds;
}

void Acceptor::Expire(int64_t now_nanoseconds) {
  if (again_at_ == 0 || again_at_ > now_nanoseconds) return;
  again_at_ = Watch().ok() ? 0 : now_nanoseconds + kPauseNanoseconds;
}

std::optional<int64_t> Acceptor::NextDeadline() const {
  if (again_at_ == 0) return std::nullopt;
  return again_at_;
}

int MaxDescriptors() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return std::numeric_limits<int>::max();
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur, std::numeric_limits<int>::max()));
}

int ReservedDescriptors() { return std::clamp(MaxDescriptors() / 8, 4, 64); }

bool IsFromReserve(const base::UniqueFd& newest) {
  return newest.get() >= MaxDescriptors() - ReservedDescriptors();
}

}  // namespace geminid::os
