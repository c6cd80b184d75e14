// The counters of sessions. They outlive their sessions, so that no count that was once shown is
// ever taken back.
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

// So many sessions have series of their own; the others are summed as one, "other".
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
  StallTimes stalls{};  // as the session's client counts them
  uint64_t queued = 0;  // nanoseconds of waiting for admission, as the client counts them
  uint64_t steps = 0;   // as the client counts them
  std::array<uint64_t, core::kDirections> transfer_bytes{};
  std::array<uint64_t, 2> disk_bytes{};  // read and written on disks, as the client counts them
};

// Every session counts in one series: its own if there is room for it, otherwise "other". Without
// room, a newcomer takes the series of the session that ended first. If none has ended, it takes
// the youngest series of the tenant that has most, so that no tenant keeps others out. That tenant
// must have at least two more than the newcomer's tenant. A session that lost its series counts in
// "other", so the sum of all series never falls. Not thread-safe.
class SessionCounters {
 public:
  // Takes the session's present counts. A client may report anything: lower counts than before are
  // ignored, and waits are cut to `age_nanoseconds`, the time this client has been attached. If the
  // daemon's own byte counts fell, another client has taken the session over. Its counts are then
  // added to those of the earlier clients.
  void Update(shm::SessionId session, const SessionLabels& labels, const SessionCounts& counts,
              uint64_t age_nanoseconds);
  // Call it after a session's last Update. Its series stays until another one needs the place.
  void End(shm::SessionId session);

  struct Series {
    SessionLabels labels;
    SessionCounts counts;
  };
  struct Reading {
    // Series of sessions in the order of their ids; then "other", if anything counts in it.
    std::vector<Series> series;
    std::map<shm::SessionId, size_t> of_session;  // index in `series`; ended sessions included
  };
  Reading Read() const;

 private:
  struct Entry {
    Series series;
    SessionCounts earlier;  // of the session's earlier clients
    SessionCounts latest;   // of its present client, without what was not believed
    bool own = false;       // whether it has a series of its own
    uint64_t ended = 0;     // position in the order of endings; 0: not ended
  };
  using Entries = std::map<shm::SessionId, Entry>;
  bool MakeRoom(const std::string& tenant);
  Entries::iterator FirstToEnd();
  Entries::iterator YoungestOfTheLargest(const std::string& newcomer);

  Entries sessions_;      // sessions with a series, and live ones that count in "other"
  SessionCounts folded_;  // of sessions without an entry in sessions_
  bool has_other_ = false;
  size_t own_count_ = 0;
  uint64_t endings_ = 0;
};

}  // namespace geminid::metrics

#endif  // GEMINID_DAEMON_METRICS_SESSION_COUNTERS_H_
