#include "daemon/service/sessions/session_rings.h"

namespace geminid::service {

// Only the first request in the ring may have been carried out. An answered request was carried out
// as a whole. The client may have acted on the answer, so carrying the request out again could have
// another effect.
void SessionRings::PassOverAnswered() {
  shm::Request request;
  if (PeekRequest(&request) != PopResult::kEntry) return;
  const bool answered = responses_.HasWritten(
      [&](const shm::Response& response) { return response.request_id == request.request_id; });
  if (answered) HasDone();
}

bool SessionRings::PushResponse(const shm::Response& response) {
  if (waiting_.empty() && responses_.TryPush(response)) return true;
  waiting_.push_back(response);
  return false;
}

bool SessionRings::FlushResponses() {
  while (!waiting_.empty() && responses_.TryPush(waiting_.front())) waiting_.pop_front();
  return waiting_.empty();
}

}  // namespace geminid::service
