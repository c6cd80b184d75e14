// The daemon's ends of the two rings in a session's shared memory: requests of the client, and
// responses to it.
#ifndef GEMINID_DAEMON_SERVICE_SESSIONS_SESSION_RINGS_H_
#define GEMINID_DAEMON_SERVICE_SESSIONS_SESSION_RINGS_H_

#include <deque>

#include "daemon/memory/session_segments.h"
#include "proto/shm/ring.h"
#include "proto/shm/session_layout.h"

namespace geminid::service {

// Guarded by the mutex of the SessionTable.
class SessionRings {
 public:
  // The memory of the segments outlives the rings.
  explicit SessionRings(const memory::SessionSegments& segments)
      : requests_(segments.client()->requests, &segments.client()->cursor.requests_written,
                  &segments.state()->cursor.requests_read),
        responses_(segments.state()->responses, &segments.state()->cursor.responses_written,
                   &segments.client()->cursor.responses_read) {}

  using PopResult = shm::RingReader<shm::Request, shm::kRingEntries>::Result;
  // The next request stays in the ring until HasDone(): should the daemon die before, the next one
  // finds it there.
  PopResult PeekRequest(shm::Request* request) { return requests_.TryPeek(request); }
  void HasDone() { requests_.Advance(); }
  bool HasRequest() const { return !requests_.Empty(); }
  // After a restart: passes over a request that the earlier daemon answered, so that none is
  // carried out twice.
  void PassOverAnswered();

  // Puts `response` into the ring; or, and returns false, behind those that wait for space in it.
  bool PushResponse(const shm::Response& response);
  // Moves waiting responses into the ring. True: none waits any more.
  bool FlushResponses();

 private:
  shm::RingReader<shm::Request, shm::kRingEntries> requests_;
  shm::RingWriter<shm::Response, shm::kRingEntries> responses_;
  // Bounded by the number of responses that the engine lets a session have outstanding, because no
  // request is read while any response waits here.
  std::deque<shm::Response> waiting_;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_SESSIONS_SESSION_RINGS_H_
