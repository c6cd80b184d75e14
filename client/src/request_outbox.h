// A session's outgoing requests: those that wait for room in the ring, and the handlers that wait
// for answers.
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

// The daemon's answer to one request. If `status` is OK, `response` is valid. If the daemon
// refused, only its error_code is.
struct Answer {
  absl::Status status;
  shm::Response response = {};
};

// Not thread-safe. No call blocks.
class RequestOutbox {
 public:
  using Handler = std::function<void(const Answer&)>;
  enum class SendOrder { kUrgent, kInOrder };

  // The segments must outlive this object.
  RequestOutbox(const shm::StateSegment* state, shm::ClientSegment* client)
      : ring_(client->requests, &client->cursor.requests_written, &state->cursor.requests_read) {}

  // Without a handler the request is a notice, which the daemon answers only if it fails.
  void Add(shm::Request request, Handler handler, SendOrder turn);
  // Moves to the ring all requests that may leave. True if any did: the daemon must be woken.
  bool Flush();
  // Whether a request waits for nothing but room in the ring.
  bool CanFlush() const;

  // Removes and returns the request's handler; null: there is none. The next daemon answers some
  // requests a second time.
  Handler Answered(uint64_t request_id);
  static bool IsNotice(uint64_t request_id);
  // Removes and returns all handlers. Requests that have not left never will.
  std::map<uint64_t, Handler> GiveUp();
  bool any_unanswered() const { return !handlers_.empty(); }
  // How long answers have been due without any arriving.
  std::chrono::milliseconds Waited() const;

 private:
  bool Push(const shm::Request& request);

  shm::RingWriter<shm::Request, shm::kRingEntries> ring_;
  std::deque<shm::Request> urgent_;       // leave first, since they return credits
  std::deque<shm::Request> backlog_;      // leave when few enough requests are unanswered
  std::map<uint64_t, Handler> handlers_;  // by request id; of requests in the ring or waiting
  size_t answers_due_ = 0;                // for requests in the ring
  std::chrono::steady_clock::time_point waiting_since_;
  uint64_t next_request_id_ = 1;
};

}  // namespace geminid

#endif  // GEMINID_CLIENT_SRC_REQUEST_OUTBOX_H_
