// The daemon's end of a session's rings. The test chooses the answers.
#ifndef GEMINID_TESTS_CLIENT_SRC_FAKE_DAEMON_H_
#define GEMINID_TESTS_CLIENT_SRC_FAKE_DAEMON_H_

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "client/src/request_port.h"
#include "proto/shm/ring.h"
#include "proto/shm/session_layout.h"
#include "tests/client/memory_files.h"

namespace geminid::testing {

// One thread takes requests out of the ring and answers with the result of `answer`, if it has one.
// Answers wait while the ring is full.
class FakeDaemon {
 public:
  using Answer = std::function<std::optional<shm::Response>(const shm::Request&)>;

  explicit FakeDaemon(Answer answer) : answer_(std::move(answer)) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
    client_socket_ = base::UniqueFd(ends[0]);
    daemon_socket_ = base::UniqueFd(ends[1]);
    daemon_event_ = base::UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    client_event_ = base::UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    thread_ = std::thread([this] { Serve(); });
  }
  ~FakeDaemon() { End(); }

  std::unique_ptr<RequestPort> MakePort() {
    RequestPort::Descriptors descriptors;
    descriptors.daemon_event = base::UniqueFd(dup(daemon_event_.get()));
    descriptors.client_event = base::UniqueFd(dup(client_event_.get()));
    descriptors.attach_socket = client_socket_.get();
    absl::StatusOr<std::unique_ptr<RequestPort>> port =
        RequestPort::Create(&state(), &client(), std::move(descriptors), "/test/socket");
    return port.ok() ? *std::move(port) : nullptr;
  }

  // Stops serving and closes the connection, like a daemon that dies.
  void End() {
    stop_.store(true);
    Wake(daemon_event_);
    if (thread_.joinable()) thread_.join();
    daemon_socket_.Reset();
  }

  // Whether the thread leaves requests in the ring.
  void Hold(bool held) {
    held_.store(held);
    Wake(daemon_event_);
  }

  std::vector<shm::Request> Seen() const {
    const std::lock_guard lock(mutex_);
    return seen_;
  }

  void Push(const shm::Response& response) {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(response);
    Wake(daemon_event_);
  }

  // Makes the response ring inconsistent.
  void Corrupt() {
    state().cursor.responses_written.fetch_add(5 * shm::kRingEntries);
    Wake(client_event_);
  }

  shm::StateSegment& state() { return *state_; }
  shm::ClientSegment& client() { return *client_; }

 private:
  static void Wake(const base::UniqueFd& event) { (void)eventfd_write(event.get(), 1); }

  void Serve() {
    shm::RingReader<shm::Request, shm::kRingEntries> requests(
        client_->requests, &client_->cursor.requests_written, &state_->cursor.requests_read);
    shm::RingWriter<shm::Response, shm::kRingEntries> responses(
        state_->responses, &state_->cursor.responses_written, &client_->cursor.responses_read);
    while (!stop_.load()) {
      shm::Request request;
      bool worked = false;
      while (!held_.load() && requests.TryPop(&request) == decltype(requests)::Result::kEntry) {
        worked = true;
        const std::optional<shm::Response> response = answer_(request);
        const std::lock_guard lock(mutex_);
        seen_.push_back(request);
        if (response.has_value()) waiting_.push_back(*response);
      }
      {
        const std::lock_guard lock(mutex_);
        while (!waiting_.empty() && responses.TryPush(waiting_.front())) {
          waiting_.erase(waiting_.begin());
          worked = true;
        }
      }
      if (worked && client_->cursor.asleep.load() != 0) Wake(client_event_);
      if (worked) continue;
      state_->cursor.asleep.store(1);
      pollfd event = {daemon_event_.get(), POLLIN, 0};
      if (requests.Empty() || held_.load()) poll(&event, 1, 1);
      state_->cursor.asleep.store(0);
      eventfd_t ignored;
      (void)eventfd_read(daemon_event_.get(), &ignored);
    }
  }

  const Answer answer_;
  const std::unique_ptr<shm::StateSegment> state_{new shm::StateSegment{}};
  const std::unique_ptr<shm::ClientSegment> client_{new shm::ClientSegment{}};
  base::UniqueFd client_socket_;
  base::UniqueFd daemon_socket_;
  base::UniqueFd daemon_event_;
  base::UniqueFd client_event_;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> held_ = false;
  mutable std::mutex mutex_;
  std::vector<shm::Request> seen_;      // guarded by mutex_
  std::vector<shm::Response> waiting_;  // guarded by mutex_
  std::thread thread_;
};

inline shm::Response DoneFor(const shm::Request& request) {
  shm::Response response = {};
  response.request_id = request.request_id;
  response.op = shm::ResponseOp::kDone;
  return response;
}

inline shm::Response ErrorFor(const shm::Request& request, absl::StatusCode code,
                              shm::ErrorReason reason) {
  shm::Response response = DoneFor(request);
  response.op = shm::ResponseOp::kError;
  response.status = static_cast<uint16_t>(code);
  response.error_code = static_cast<uint8_t>(reason);
  return response;
}

}  // namespace geminid::testing

#endif  // GEMINID_TESTS_CLIENT_SRC_FAKE_DAEMON_H_
