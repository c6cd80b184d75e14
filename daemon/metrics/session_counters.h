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

#include "daemon/core/basics/ids.h"
#include "daemon/core/transfers/transfer_scheduler.h"
#include "proto/shm/session_layout.h"

namespace geminid::metrics {

// So many sessions have a series of their own; the others count as one, "other".
inline constexpr size_t kMaxSessionSeries = 256;

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

struct SessionCounts {
  StallTimes stalls{};  // as its client counts them
  uint64_t queued = 0;  // nanoseconds that it waited for admission, likewise
  uint64_t steps = 0;   // likewise
  std::array<uint64_t, core::kDirections> transfer_bytes{};
  std::array<uint64_t, 2> disk_bytes{};  // from and to disks, as its client counts them
};

// A session has one series: its own while there is room for it, else "other". Whose series goes
// when there is no room: that of the session that ended first; then, so that no tenant keeps the
// others out, the youngest of the tenant that has most, if that has at least two more than the
// newcomer's. What goes counts in "other" from then on, so that the sum over all series never
// falls. Not thread-safe.
class SessionCounters {
 public:
  // What is known of the session now. Its client may say anything: what is less than before is not
  // believed, nor a wait that is longer than `age_nanoseconds`, for which this client has been
  // attached. Where the bytes that the daemon itself has counted are fewer than before, another
  // client has taken the session over, and all its counts are added to those before.
  void Update(shm::SessionId session, const SessionLabels& labels, const SessionCounts& counts,
              uint64_t age_nanoseconds);
  // The session is gone, after a last Update. Its series stays until its place is needed.
  void End(shm::SessionId session);

  struct Series {
    SessionLabels labels;
    SessionCounts counts;
  };
  struct Reading {
    // Those of sessions in the order in which they were first seen; then "other", if it has any.
    std::vector<Series> series;
    std::map<shm::SessionId, size_t> of_session;  // which of them; those that ended included
  };
  Reading Read() const;

 private:
  struct Entry {
    Series series;
    SessionCounts earlier;  // of clients before this one
    SessionCounts latest;   // of this one, as it was given
    bool own = false;       // has a series of its own
    uint64_t ended = 0;     // order of ending; 0: not ended
  };
  using Entries = std::map<shm::SessionId, Entry>;
  bool MakeRoom(const std::string& tenant);
  Entries::iterator FirstToEnd();
  Entries::iterator YoungestOfTheLargest(const std::string& newcomer);

  Entries sessions_;      // those with a series, and those that count in other
  SessionCounts folded_;  // of sessions that are in no entry any more
  bool has_other_ = false;
  size_t own_count_ = 0;
  uint64_t endings_ = 0;
};

}  // namespace geminid::metrics

#endif  // GEMINID_DAEMON_METRICS_SESSION_COUNTERS_H_
