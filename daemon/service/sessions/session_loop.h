// The event loop's side of the sessions: wakes up for their requests, notices their deaths.
#ifndef GEMINID_DAEMON_SERVICE_SESSIONS_SESSION_LOOP_H_
#define GEMINID_DAEMON_SERVICE_SESSIONS_SESSION_LOOP_H_

#include <array>
#include <map>
#include <optional>
#include <set>

#include "daemon/os/event_loop.h"
#include "daemon/service/sessions/session_hub.h"
#include "daemon/service/tenants/tenant_log.h"

namespace geminid::service {

// Belongs to the event loop's thread.
class SessionLoop {
 public:
  // All arguments must outlive it.
  SessionLoop(os::EventLoop* loop, SessionHub* hub, TenantLog* log)
      : loop_(loop), hub_(hub), log_(log) {}
  ~SessionLoop();

  // Watches a session that has just attached; ends it if it cannot be watched.
  void Add(const SessionPtr& session);
  // Watches a session. On an error, mostly RESOURCE_EXHAUSTED, the session goes on unwatched.
  absl::Status Watch(const SessionPtr& session);
  // Stops watching a session that has ended by itself.
  void Remove(shm::SessionId session);

  // One round over the sessions that have requests, at most a bound for each.
  void PumpAll();
  // Some session has requests left: do not sleep.
  bool busy() const { return !busy_.empty(); }
  // When to look again at a client that does not read its responses.
  std::optional<int64_t> NextDeadline() const;

 private:
  struct Watched {
    SessionPtr session;
    std::array<os::EventLoop::WatchId, 3> watches{};
  };

  // A session whose client does not read its responses. Our library always reads them. The longer
  // that lasts, the more rarely the daemon looks.
  struct BlockedClient {
    int64_t due = 0;
    int64_t pause = 0;
  };

  void OnSocket(const SessionPtr& session);
  void Pump(const SessionPtr& session, int64_t now);
  void End(const SessionPtr& session, core::CloseReason reason, const char* why);

  os::EventLoop* const loop_;
  SessionHub* const hub_;
  TenantLog* const log_;
  std::map<shm::SessionId, Watched> watched_;
  std::set<shm::SessionId> busy_;
  std::map<shm::SessionId, BlockedClient> blocked_;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_SESSIONS_SESSION_LOOP_H_
