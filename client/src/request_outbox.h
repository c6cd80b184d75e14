// Requests on their way out of a session: those that wait for room in the ring, and who waits for
// the answers.
#ifndef GEMINID_CLIENT_SRC_REQUEST_OUTBOX_H_
#define GEMINID_CLIENT_SRC_REQUEST_OUTBOX_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>

#include "absl/status/status.h"
#include "proto/shm/ring.h"
#include "proto/shm/session_layout.h"

namespace geminid {

// What the daemon said to one request. `response` is meaningful when status is OK, and its
// error_code when the daemon refused.
struct Answer {
  absl::Status status;
  shm::Response response = {};
};

// Not thread-safe. Nothing here blocks.
class RequestOutbox {
 public:
  using Handler = std::function<void(const Answer&)>;
  enum class Turn { kUrgent, kInOrder };

  // The segments must outlive it.
  RequestOutbox(const shm::StateSegment* state, shm::ClientSegment* client)
      : ring_(client->requests, &client->cursor.requests_written, &state->cursor.requests_read) {}

  // Without a handler the request is a notice, which is answered only if it fails.
  void Add(shm::Request request, Handler handler, Turn turn);
  // Moves to the ring what may leave. True when something did: the daemon must be woken.
  bool Flush();
  // Something waits that the ring alone holds up.
  bool CanFlush() const;

  // Who waits for the answer, and waits no longer; null: nobody does. The daemon's successor
  // answers some requests for a second time.
  Handler Answered(uint64_t request_id);
  static bool IsNotice(uint64_t request_id);
  // Everybody who waits. Nothing that waited leaves any more.
  std::map<uint64_t, Handler> GiveUp();
  bool any_unanswered() const { return !handlers_.empty(); }
  // For how long answers have been due of which none has come.
  std::chrono::milliseconds Waited() const;

 private:
  bool Push(const shm::Request& request);

  shm::RingWriter<shm::Request, shm::kRingEntries> ring_;
  std::deque<shm::Request> urgent_;       // leave first: they give credits back
  std::deque<shm::Request> backlog_;      // leave when few enough requests are unanswered
  std::map<uint64_t, Handler> handlers_;  // by request id, in the ring or waiting
  size_t answers_due_ = 0;                // of requests in the ring
  std::chrono::steady_clock::time_point waiting_since_;
  uint64_t next_request_id_ = 1;
};

}  // namespace geminid

#endif  // GEMINID_CLIENT_SRC_REQUEST_OUTBOX_H_
