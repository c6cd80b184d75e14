// Shortages that may pass: of memory, threads or descriptors, while what an earlier daemon left is
// taken over. They prove nothing about what it left, so none of that is given up for them.
#ifndef GEMINID_DAEMON_SERVICE_HERITAGE_SHORTAGE_H_
#define GEMINID_DAEMON_SERVICE_HERITAGE_SHORTAGE_H_

#include <functional>

#include "absl/status/status.h"
#include "daemon/core/basics/time.h"

namespace geminid::service {

// Nothing was wrong with what the call was made with: it may succeed later.
bool IsShortage(const absl::Status& status);

// The longest that the calls of one Shortage wait in all. A daemon has one, for all of its start. A
// service manager that starts a daemon 5 times a minute at most goes on starting one that waits so
// long.
inline constexpr core::Duration kShortagePatience = core::Duration::Seconds(15);

// Repeats calls that fail for a shortage, with pauses from 10 ms to 1 s between them. Its patience
// is spent once, by all of its calls together.
class Shortage {
 public:
  // `pause` waits for so long; tests do something else.
  using Pause = std::function<void(core::Duration)>;
  explicit Shortage(Pause pause = nullptr);

  // The status of the last call: still a shortage when patience has ended.
  absl::Status Outlast(const std::function<absl::Status()>& call);

 private:
  const Pause pause_;
  core::Duration waited_;
  core::Duration next_pause_;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_HERITAGE_SHORTAGE_H_
