#include "daemon/service/entry/stop_signs.h"

#include <signal.h>
#include <string.h>
#include <sys/epoll.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "daemon/os/log.h"
#include "daemon/os/terminal.h"
#include "daemon/os/unix_socket.h"

namespace geminid::service {

absl::Status StopSigns::Watch() {
  GEMINID_RETURN_IF_ERROR(WatchSignals());
  GEMINID_RETURN_IF_ERROR(WatchTerminal());
  return WatchParent();
}

absl::Status StopSigns::WatchSignals() {
  if (!options_->signal_fd.valid()) return absl::OkStatus();
  return loop_
      ->Watch(options_->signal_fd.get(), EPOLLIN,
              [this](uint32_t) {
                const os::ReceivedSignal signal = os::NextSignal(options_->signal_fd);
                if (signal.number != 0) OnSignal(signal);
              })
      .status();
}

void StopSigns::OnSignal(const os::ReceivedSignal& signal) {
  if (options_->parent_pid != 0 && signal.sender != options_->parent_pid) {
    os::Log(os::LogLevel::kInfo, "ignored a signal: a private daemon ends with its parent",
            {{"signal", ::strsignal(signal.number)}, {"sender", absl::StrCat(signal.sender)}});
  } else if (signal.number != SIGHUP) {
    os::Log(os::LogLevel::kInfo, "stopping", {{"signal", ::strsignal(signal.number)}});
    vitals_->stopping.store(true);
  } else if (options_->terminal.valid() && os::HasHungUp(options_->terminal)) {
    StopWithTerminal();
  } else {
    reload_();
  }
}

void StopSigns::StopWithTerminal() {
  os::Log(os::LogLevel::kInfo, "stopping: its terminal was closed",
          {{"advice", "--outlive-terminal keeps the daemon"}});
  vitals_->stopping.store(true);
}

// Edges only: a terminal is readable whenever somebody typed.
absl::Status StopSigns::WatchTerminal() {
  if (!options_->terminal.valid()) return absl::OkStatus();
  return loop_
      ->Watch(options_->terminal.get(), EPOLLIN | EPOLLET,
              [this](uint32_t) {
                if (!vitals_->stopping.load() && os::HasHungUp(options_->terminal)) {
                  StopWithTerminal();
                }
              })
      .status();
}

absl::Status StopSigns::WatchParent() {
  if (options_->parent_pid == 0) return absl::OkStatus();
  absl::StatusOr<base::UniqueFd> pidfd = os::OpenPidfd(options_->parent_pid);
  if (absl::IsNotFound(pidfd.status())) {
    parent_gone_ = true;
    return absl::OkStatus();
  }
  if (!pidfd.ok()) return pidfd.status();
  parent_pidfd_ = *std::move(pidfd);
  const auto id = std::make_shared<os::EventLoop::WatchId>(0);
  absl::StatusOr<os::EventLoop::WatchId> watch =
      loop_->Watch(parent_pidfd_.get(), EPOLLIN, [this, id](uint32_t) {
        parent_gone_ = true;
        loop_->Unwatch(*id);
      });
  if (watch.ok()) *id = *watch;
  return watch.status();
}

}  // namespace geminid::service
