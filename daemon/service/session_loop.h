// The event loop's side of the sessions: wakes up for their requests, notices their deaths.
#ifndef GEMINID_DAEMON_SERVICE_SESSION_LOOP_H_
#define GEMINID_DAEMON_SERVICE_SESSION_LOOP_H_

#include <array>
#include <map>
#include <set>

#include "daemon/os/event_loop.h"
#include "daemon/service/hub.h"

namespace geminid::service {

// Belongs to the event loop's thread.
class SessionLoop {
 public:
  // Both outlive it.
  SessionLoop(os::EventLoop* loop, Hub* hub) : loop_(loop), hub_(hub) {}
  ~SessionLoop();

  // Watches a session that has just attached.
  void Add(const SessionPtr& session);
  // Stops watching one that has ended by itself.
  void Remove(shm::SessionId session);

  // One round over the sessions that have requests, at most a bound for each.
  void PumpAll();
  // Some session has requests left: do not sleep.
  bool busy() const { return !busy_.empty(); }
  // Some client does not read its responses: look again in a while.
  bool blocked() const { return !blocked_.empty(); }

 private:
  struct Watched {
    SessionPtr session;
    std::array<os::EventLoop::WatchId, 3> watches{};
  };

  void OnSocket(const SessionPtr& session);
  void End(const SessionPtr& session, core::CloseReason reason, const char* why);

  os::EventLoop* const loop_;
  Hub* const hub_;
  std::map<shm::SessionId, Watched> watched_;
  std::set<shm::SessionId> busy_;
  std::set<shm::SessionId> blocked_;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_SESSION_LOOP_H_
