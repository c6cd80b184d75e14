// The fast path: carries out the requests in the sessions' rings, and puts the engine's answers
// into the rings of the sessions that they are for.
#ifndef GEMINID_DAEMON_SERVICE_SESSIONS_REQUEST_PUMP_H_
#define GEMINID_DAEMON_SERVICE_SESSIONS_REQUEST_PUMP_H_

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "daemon/service/sessions/reclaimer.h"
#include "daemon/service/sessions/session_table.h"
#include "daemon/service/sessions/waker.h"

namespace geminid::service {

// The result of a look at a session's ring.
enum class PumpResult {
  kMore,     // stopped at its bound of work: call again soon
  kArmed,    // no request is left; the client will write the daemon's event
  kBlocked,  // the client does not read its responses: call again in a while
  kCorrupt,  // the ring contradicts itself: the session must be closed
  kEnded,
};

// For the event loop's thread.
class RequestPump {
 public:
  // All arguments must outlive it.
  RequestPump(SessionTable* table, Waker* waker, Reclaimer* reclaimer)
      : table_(table), waker_(waker), reclaimer_(reclaimer) {}

  // Carries out requests of the session: at most 64, and no further one after half a millisecond.
  PumpResult Pump(const SessionPtr& session);
  // Lets the engine do everything that has become due.
  void Tick();
  // When to call Tick next, in monotonic nanoseconds.
  std::optional<int64_t> NextTick();
  // After a restart: delivers `out`, and wakes every client that sleeps. The earlier daemon may
  // have answered, and died before it woke the client.
  void ResumeAll(const std::vector<core::Outgoing>& out);

 private:
  using Locked = SessionTable::Locked;
  // Clients to wake once the mutex is free: a client can delay its wake-up, and that must not keep
  // others waiting.
  using SessionsToWake = std::vector<SessionPtr>;

  PumpResult PumpLocked(const Locked& locked, ClientSession* session, SessionsToWake* to_wake);
  void Push(const Locked& locked, const std::vector<core::Outgoing>& out,
            std::vector<ClientSession*>* served);
  void Deliver(const Locked& locked, const std::vector<core::Outgoing>& out,
               SessionsToWake* to_wake);
  void FlushOthers(const Locked& locked, core::Time now, SessionsToWake* to_wake);
  void Wake(const SessionsToWake& to_wake);  // without the mutex

  SessionTable* const table_;
  Waker* const waker_;
  Reclaimer* const reclaimer_;
  // Sessions whose rings were full when another session's request brought them a response. They may
  // have no request of their own that would make room, so they are looked at again at `flush_at_`.
  // All three members are guarded by the mutex of the table.
  std::set<shm::SessionId> unflushed_;
  core::Time flush_at_;
  core::Duration flush_pause_;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_SESSIONS_REQUEST_PUMP_H_
