#include "client/src/request_outbox.h"

#include <utility>

namespace geminid {
namespace {

// Every request in the ring gets at most one answer. With fewer than half the ring unanswered, the
// daemon always has room to answer, whatever else it refuses.
constexpr size_t kMaxAnswersDue = shm::kRingEntries / 2;
constexpr uint64_t kNoticeBit = uint64_t{1} << 63;

}  // namespace

void RequestOutbox::Add(shm::Request request, Handler handler, SendOrder turn) {
  request.request_id = next_request_id_++ | (handler == nullptr ? kNoticeBit : 0);
  if (handler != nullptr) handlers_.emplace(request.request_id, std::move(handler));
  (turn == SendOrder::kUrgent ? urgent_ : backlog_).push_back(request);
}

bool RequestOutbox::CanFlush() const {
  return !urgent_.empty() || (!backlog_.empty() && answers_due_ < kMaxAnswersDue);
}

bool RequestOutbox::Flush() {
  bool pushed = false;
  while (!urgent_.empty() && Push(urgent_.front())) {
    urgent_.pop_front();
    pushed = true;
  }
  while (urgent_.empty() && !backlog_.empty() && answers_due_ < kMaxAnswersDue &&
         Push(backlog_.front())) {
    backlog_.pop_front();
    pushed = true;
  }
  return pushed;
}

bool RequestOutbox::Push(const shm::Request& request) {
  if (!ring_.TryPush(request)) return false;
  if (!handlers_.contains(request.request_id)) return true;
  if (answers_due_++ == 0) waiting_since_ = std::chrono::steady_clock::now();
  return true;
}

RequestOutbox::Handler RequestOutbox::Answered(uint64_t request_id) {
  const auto found = handlers_.find(request_id);
  if (found == handlers_.end()) return nullptr;
  Handler handler = std::move(found->second);
  handlers_.erase(found);
  if (answers_due_ > 0) --answers_due_;
  waiting_since_ = std::chrono::steady_clock::now();
  return handler;
}

bool RequestOutbox::IsNotice(uint64_t request_id) { return (request_id & kNoticeBit) != 0; }

std::map<uint64_t, RequestOutbox::Handler> RequestOutbox::GiveUp() {
  urgent_.clear();
  backlog_.clear();
  answers_due_ = 0;
  return std::exchange(handlers_, {});
}

std::chrono::milliseconds RequestOutbox::Waited() const {
  if (answers_due_ == 0) return std::chrono::milliseconds(0);
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() -
                                                               waiting_since_);
}

}  // namespace geminid
