// Counts what sessions have done, for the metrics: their stalls, steps and transfers, and how long
// it took to make their memory.
#ifndef GEMINID_DAEMON_SERVICE_SESSIONS_SESSION_STATISTICS_H_
#define GEMINID_DAEMON_SERVICE_SESSIONS_SESSION_STATISTICS_H_

#include <map>

#include "daemon/core/basics/time_histogram.h"
#include "daemon/metrics/reading.h"
#include "daemon/metrics/session_counters.h"
#include "daemon/service/sessions/session_table.h"

namespace geminid::service {

// Guarded by the mutex of the table.
class SessionStatistics {
 public:
  using Locked = SessionTable::Locked;
  using Allocations = std::map<shm::Tier, core::TimeHistogram>;

  // Notes the session's counters as they are now. The last call must come before the engine forgets
  // what the session has copied.
  void Note(const Locked& locked, const ClientSession& session);
  // The session has ended for good.
  void End(const Locked&, shm::SessionId session) { counters_.End(session); }
  void NoteAllocation(const Locked&, shm::Tier tier, core::Duration took) {
    allocations_[tier].Add(took);
  }

  // Notes all sessions with a client. The counters of a client that has gone are out of date.
  void NoteAll(const Locked& locked);
  // Over all sessions so far, those that have ended included.
  metrics::SessionCounters::Reading Counted(const Locked&) const { return counters_.Read(); }
  // What this daemon took over from an earlier one.
  void SetTakeOver(const Locked&, const metrics::TakeOverReading& reading) { take_over_ = reading; }
  const metrics::TakeOverReading& take_over(const Locked&) const { return take_over_; }
  // By tier: how long it took to make the memory of an allocation.
  const Allocations& allocations(const Locked&) const { return allocations_; }

 private:
  metrics::SessionCounters counters_;
  metrics::TakeOverReading take_over_;
  Allocations allocations_ = {{shm::Tier::kHost, {}}, {shm::Tier::kDevice, {}}};
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_SESSIONS_SESSION_STATISTICS_H_
