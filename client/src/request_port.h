// The client's end of the session's rings: sends requests, and has one thread that takes answers.
#ifndef GEMINID_CLIENT_SRC_REQUEST_PORT_H_
#define GEMINID_CLIENT_SRC_REQUEST_PORT_H_

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "client/src/request_outbox.h"
#include "collectives/async/pending_state.h"
#include "proto/shm/ring.h"
#include "proto/shm/session_layout.h"

namespace geminid {

// Thread-safe. Requests leave in the order of the calls. Requests that cannot leave yet wait here,
// so no caller ever blocks, nor does a copy whose completion returns credits.
//
// The daemon may die and restart meanwhile: the rings, their requests and the descriptors outlive
// it. The next daemon executes the requests, and may repeat answers, which are ignored. The port
// breaks only when neither a daemon nor the descriptor store has the attach socket's other end.
class RequestPort final : public Executor {
 public:
  // Called once, on the port's thread or in Stop.
  using Handler = RequestOutbox::Handler;

  struct Descriptors {
    base::UniqueFd daemon_event;  // an eventfd; writing it wakes the daemon
    base::UniqueFd client_event;  // non-blocking; readable when the daemon wakes this side
    int attach_socket = -1;       // its peer is the daemon; not owned
    bool on_gpu = false;          // the session's device is a GPU
  };

  // The segments must outlive the port. Starts the thread.
  static absl::StatusOr<std::unique_ptr<RequestPort>> Create(const shm::StateSegment* state,
                                                             shm::ClientSegment* client,
                                                             Descriptors descriptors,
                                                             std::string socket);
  // Creates a port without a thread. Step does the thread's work, for simulations.
  static absl::StatusOr<std::unique_ptr<RequestPort>> CreateWithoutThread(
      const shm::StateSegment* state, shm::ClientSegment* client, Descriptors descriptors,
      std::string socket);
  // Returns true if there was anything to do. Not for a port with a thread.
  bool Step() { return Work(); }
  ~RequestPort() override;

  // Sends a request that is answered once.
  void Submit(const shm::Request& request, Handler handler);
  // Like Submit, but overtakes requests that wait for answers. For requests that follow a grant.
  void SubmitUrgent(const shm::Request& request, Handler handler);
  // Sends a request that is answered only if it fails; see status().
  void Post(const shm::Request& request);
  // Like Post, but leaves with the next request, just before it, and causes no wake-up of its own.
  void PostWithNext(const shm::Request& request);
  void PostUrgent(const shm::Request& request);

  // Runs `call` on the port's thread; after Stop, at once on the caller's thread.
  void Run(std::function<void()> call) override;

  // Ends the thread. Unanswered requests fail with `why`, and later ones fail at once.
  void Stop(const absl::Status& why);
  // Breaks the port because of `why`: waiting and later requests fail, on the port's thread.
  void Break(const absl::Status& why);

  // OK while the daemon is there and has refused no notice.
  absl::Status status() const;

 private:
  RequestPort(const shm::StateSegment* state, shm::ClientSegment* client, Descriptors descriptors,
              base::UniqueFd wake, std::string socket);

  using SendOrder = RequestOutbox::SendOrder;
  void Send(const shm::Request& request, Handler handler, SendOrder turn);
  void FlushLocked();
  void WakeDaemon();
  void WakeSelfLocked();

  void Loop();
  bool Work();
  bool PumpResponses();
  void Deliver(const shm::Response& response);
  bool RunCalls();
  void FailUnanswered();
  absl::Status DaemonEnded() const;
  void Sleep();
  bool HasResponse() const { return !corrupt_ && !responses_.Empty(); }

  const shm::StateSegment* const state_;
  shm::ClientSegment* const client_;
  const Descriptors descriptors_;
  const base::UniqueFd wake_;
  const std::string socket_;

  mutable std::mutex mutex_;
  // Guarded by mutex_:
  RequestOutbox outbox_;
  std::vector<std::function<void()>> calls_;
  absl::Status status_;
  bool broken_ = false;
  enum class Phase { kRuns, kStopping, kStopped } phase_ = Phase::kRuns;

  // Used by the thread alone.
  shm::RingReader<shm::Response, shm::kRingEntries> responses_;
  bool corrupt_ = false;
  bool daemon_gone_ = false;
  std::thread thread_;
};

}  // namespace geminid

#endif  // GEMINID_CLIENT_SRC_REQUEST_PORT_H_
