// Watches for signals, for the end of the daemon's terminal, and for the end of the process that a
// private daemon belongs to. Each of them ends the daemon, except SIGHUP, which makes it read its
// settings again.
#ifndef GEMINID_DAEMON_SERVICE_ENTRY_STOP_SIGNS_H_
#define GEMINID_DAEMON_SERVICE_ENTRY_STOP_SIGNS_H_

#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "base/unique_fd.h"
#include "daemon/os/event.h"
#include "daemon/os/event_loop.h"
#include "daemon/service/entry/daemon_options.h"
#include "daemon/service/watch/vitals.h"

namespace geminid::service {

// Belongs to the event loop's thread.
class StopSigns {
 public:
  // All arguments must outlive it. A sign sets `vitals->stopping`; SIGHUP calls `reload`.
  StopSigns(const DaemonOptions* options, os::EventLoop* loop, Vitals* vitals,
            std::function<void()> reload)
      : options_(options), loop_(loop), vitals_(vitals), reload_(std::move(reload)) {}

  absl::Status Watch();
  // The process that a private daemon belongs to has ended: the daemon is to end with its last
  // session.
  bool parent_gone() const { return parent_gone_; }

 private:
  absl::Status WatchSignals();
  absl::Status WatchTerminal();
  absl::Status WatchParent();
  void OnSignal(const os::ReceivedSignal& signal);
  void StopWithTerminal();

  const DaemonOptions* const options_;
  os::EventLoop* const loop_;
  Vitals* const vitals_;
  const std::function<void()> reload_;
  base::UniqueFd parent_pidfd_;
  bool parent_gone_ = false;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_ENTRY_STOP_SIGNS_H_
