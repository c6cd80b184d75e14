// Error texts for sessions whose daemon has ended.
#ifndef GEMINID_CLIENT_SRC_DAEMON_ENDED_H_
#define GEMINID_CLIENT_SRC_DAEMON_ENDED_H_

#include <string_view>

#include "absl/status/status.h"

namespace geminid {

// Returned by every call of a session whose job was ended by the operator or by its user.
inline constexpr char kJobEndedWords[] =
    "the job was ended on request (geminictl end); its memory is gone";
inline absl::Status JobEnded() { return absl::CancelledError(kJobEndedWords); }
inline bool IsJobEnded(const absl::Status& status) {
  return absl::IsCancelled(status) && status.message() == kJobEndedWords;
}

// Why the session ended. A GPU's memory is held by an agent of the daemon, which ends with the
// daemon. Any other session waits for the next daemon.
inline const char* WhySessionEnded(bool on_gpu) {
  return on_gpu ? "a session on a GPU ends with its daemon, whose agent held the memory"
                : "no other daemon took its place";
}

}  // namespace geminid

#endif  // GEMINID_CLIENT_SRC_DAEMON_ENDED_H_
