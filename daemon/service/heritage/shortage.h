// Shortages of memory, threads or descriptors that may pass, while an earlier daemon's sessions are
// taken over. They do not prove any damage, so no session is given up for them.
#ifndef GEMINID_DAEMON_SERVICE_HERITAGE_SHORTAGE_H_
#define GEMINID_DAEMON_SERVICE_HERITAGE_SHORTAGE_H_

#include <functional>

#include "absl/status/status.h"
#include "daemon/core/basics/time.h"

namespace geminid::service {

// The call's arguments were right: it may succeed later.
bool IsShortage(const absl::Status& status);

// The longest that the calls of one Shortage wait in all. A daemon has one, for all of its start.
// A service manager that allows 5 starts in a minute goes on starting a daemon that waits this
// long.
inline constexpr core::Duration kShortagePatience = core::Duration::Seconds(15);

// Repeats calls that fail for a shortage, with pauses from 10 ms to 1 s between them. All of its
// calls share kShortagePatience.
class Shortage {
 public:
  // Waits for the duration; tests replace it.
  using Pause = std::function<void(core::Duration)>;
  explicit Shortage(Pause pause = nullptr);

  // The status of the last call: still a shortage if patience has ended.
  absl::Status Outlast(const std::function<absl::Status()>& call);

 private:
  const Pause pause_;
  core::Duration waited_;
  core::Duration next_pause_;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_HERITAGE_SHORTAGE_H_
