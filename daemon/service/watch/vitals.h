// Values that the daemon's threads publish for health checks and metrics.
#ifndef GEMINID_DAEMON_SERVICE_WATCH_VITALS_H_
#define GEMINID_DAEMON_SERVICE_WATCH_VITALS_H_

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "daemon/core/basics/time.h"
#include "daemon/metrics/call_times.h"
#include "daemon/service/watch/socket_paths.h"

namespace geminid::service {

// The structs are thread-safe. Requests to share the node that the daemon carried out or
// refused.
struct SharingCounts {
  std::atomic<uint64_t> done{0};
  std::atomic<uint64_t> refused{0};
};

// Requests by people.
struct RequestCounts {
  std::atomic<uint64_t> done{0};
  std::atomic<uint64_t> refused{0};    // before the ranks began the change
  std::atomic<uint64_t> gone_back{0};  // the ranks began the change, and it was not done
};

struct JobCounts {
  SharingCounts sharing;
  RequestCounts scales;             // for another number of ranks
  RequestCounts moves;              // to another host
  std::atomic<uint64_t> shrunk{0};  // jobs that went on with fewer ranks after a death
};

// Whether the next daemon would find this daemon's sessions.
enum class SessionSurvival {
  kNotWanted,  // restart_time is 0: sessions end with their daemon
  kAssured,    // the descriptor store has them
  kLost,       // there is no store
};

struct Vitals {
  std::atomic<bool> serving{false};   // the event loop runs
  std::atomic<bool> stopping{false};  // it is about to end
  // When an event loop began its present turn, monotonic; 0: it waits for something to do. A
  // turn takes well under a millisecond; at the entrance longer, if others want its
  // processor.
  std::atomic<int64_t> turn_since_nanoseconds{0};
  std::atomic<int64_t> entrance_turn_since_nanoseconds{0};
  std::atomic<bool> last_reload_good{true};
  std::atomic<double> last_good_reload_seconds{0};  // since the Unix epoch
  std::atomic<SessionSurvival> survival{SessionSurvival::kNotWanted};
  SocketPaths sockets;
  metrics::CallTimes calls;
  JobCounts jobs;

  // The duration of the longer of the two loops' present turns.
  core::Duration LongestTurn(core::Time now) const {
    core::Duration longest;
    for (const auto* since : {&turn_since_nanoseconds, &entrance_turn_since_nanoseconds}) {
      const int64_t begin = since->load();
      if (begin != 0) longest = std::max(longest, now - core::Time::FromNanoseconds(begin));
    }
    return longest;
  }
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_WATCH_VITALS_H_
