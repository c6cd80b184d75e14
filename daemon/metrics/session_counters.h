// The counters of sessions, which outlive their sessions: what was counted once is never taken
// back.
#ifndef GEMINID_DAEMON_METRICS_SESSION_COUNTERS_H_
#define GEMINID_DAEMON_METRICS_SESSION_COUNTERS_H_

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "daemon/core/ids.h"
#include "proto/shm/session_layout.h"

namespace geminid::metrics {

// So many sessions have a series of their own; the others count as one, "other".
inline constexpr size_t kMaxSessionSeries = 64;

struct SessionLabels {
  std::string tenant;
  std::string job;
  std::string rank;
  std::string session;
  auto operator<=>(const SessionLabels&) const = default;
};
SessionLabels OtherSessions();

// Nanoseconds by shm::StallCause.
using StallTimes = std::array<uint64_t, shm::kStallCauses>;

// A session has one series for good: its own, if there was room when it was first seen, else
// "other". The series of the session that ended first makes room for a new one: its counts move to
// "other", so that the sum over all series never falls. Not thread-safe.
class SessionCounters {
 public:
  // What the session's client says now. It may say anything: what is less than before is not
  // believed.
  void Update(shm::SessionId session, const SessionLabels& labels, const StallTimes& stalls);
  // The session is gone, after a last Update. Its series stays until its place is needed.
  void End(shm::SessionId session);

  struct Series {
    SessionLabels labels;
    StallTimes stalls{};
  };
  // Those of sessions in the order in which they were first seen; then "other", if it has any.
  std::vector<Series> Read() const;
  // Under which the session's other metrics go.
  SessionLabels LabelsOf(shm::SessionId session) const;

 private:
  struct Entry {
    Series series;
    bool own = false;    // has a series of its own
    uint64_t ended = 0;  // order of ending; 0: not ended
  };
  bool MakeRoom();

  std::map<shm::SessionId, Entry> sessions_;  // those with a series, and those that count in other
  StallTimes folded_{};                       // of sessions that are in no entry any more
  bool has_other_ = false;
  size_t own_count_ = 0;
  uint64_t endings_ = 0;
};

}  // namespace geminid::metrics

#endif  // GEMINID_DAEMON_METRICS_SESSION_COUNTERS_H_
