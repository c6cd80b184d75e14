// The client's end of the session's rings: requests out, answers in, and one thread that waits.
#ifndef GEMINID_CLIENT_SRC_REQUEST_PORT_H_
#define GEMINID_CLIENT_SRC_REQUEST_PORT_H_

#include <atomic>
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

// Thread-safe. Requests leave in the order they were handed over; those that cannot leave yet wait
// here, so that nobody ever blocks: not a caller, and not a copy whose completion returns credits.
//
// The daemon may die and be started again meanwhile: the rings and descriptors outlive it, and so
// do the requests in them. Its successor carries them out, and may answer once more what had been
// answered; that is not listened to. Only when nobody keeps the connection any more is it broken.
class RequestPort final : public Executor {
 public:
  // Called once, on the port's thread, or in Stop.
  using Handler = RequestOutbox::Handler;

  struct Descriptors {
    base::UniqueFd daemon_event;  // an eventfd: written, it wakes the daemon
    base::UniqueFd client_event;  // non-blocking; readable, it wakes this side
    int attach_socket = -1;       // its end is the daemon's; not owned
    bool on_gpu = false;          // is the session's device
  };

  // The segments must outlive the port. Starts the thread.
  static absl::StatusOr<std::unique_ptr<RequestPort>> Create(const shm::StateSegment* state,
                                                             shm::ClientSegment* client,
                                                             Descriptors descriptors,
                                                             std::string socket);
  // The same without a thread: what it would do is done by Step, for simulations.
  static absl::StatusOr<std::unique_ptr<RequestPort>> CreateWithoutThread(
      const shm::StateSegment* state, shm::ClientSegment* client, Descriptors descriptors,
      std::string socket);
  // True when something was done. Not for a port with a thread.
  bool Step() { return Work(); }
  ~RequestPort() override;

  // Sends a request that is answered once.
  void Submit(const shm::Request& request, Handler handler);
  // Like Submit, ahead of requests that wait for answers to others: for what follows a grant.
  void SubmitUrgent(const shm::Request& request, Handler handler);
  // Sends a request that is answered only if it fails; see status().
  void Post(const shm::Request& request);
  // Like Post, together with the next request and before it: nobody is woken for this alone.
  void PostWithNext(const shm::Request& request);
  void PostUrgent(const shm::Request& request);

  // Runs `call` on the port's thread; here and now once it has stopped.
  void Run(std::function<void()> call) override;

  // Ends the thread; every request not answered yet fails with `why`, and later ones at once.
  void Stop(const absl::Status& why);
  // From now on nothing works, because of `why`: what waits fails, on the port's thread.
  void Break(const absl::Status& why);

  // OK while the daemon is there and no request without answer was refused.
  absl::Status status() const;

 private:
  RequestPort(const shm::StateSegment* state, shm::ClientSegment* client, Descriptors descriptors,
              base::UniqueFd wake, std::string socket);

  using Turn = RequestOutbox::Turn;
  void Send(const shm::Request& request, Handler handler, Turn turn);
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

  // Of the thread.
  shm::RingReader<shm::Response, shm::kRingEntries> responses_;
  bool corrupt_ = false;
  bool daemon_gone_ = false;
  std::thread thread_;
};

}  // namespace geminid

#endif  // GEMINID_CLIENT_SRC_REQUEST_PORT_H_
