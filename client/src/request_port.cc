#include "client/src/request_port.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/start_thread.h"
#include "base/status_macros.h"
#include "base/system_error.h"
#include "client/os/thread.h"
#include "client/src/daemon_ended.h"

namespace geminid {
namespace {

// A busy daemon answers within about a microsecond; for a sleeping one a wake-up is needed anyway.
constexpr std::chrono::microseconds kSpin{2};
// Intervals for the heartbeat, and for looking at a full ring again.
constexpr int kIdleMilliseconds = 1000;
constexpr int kBacklogMilliseconds = 1;
absl::Status RefusedStatus(const shm::Response& response) {
  const auto reason = static_cast<shm::ErrorReason>(response.error_code);
  auto code = static_cast<absl::StatusCode>(response.status);
  if (code == absl::StatusCode::kOk) code = absl::StatusCode::kInternal;
  return absl::Status(code, shm::Name(reason));
}

void WriteEvent(const base::UniqueFd& event) {
  // If the counter is full, its reader has been woken already.
  (void)eventfd_write(event.get(), 1);
}

// Reads an eventfd's count, or the bytes of the daemon's wake-ups.
void ClearEvent(const base::UniqueFd& event) {
  char bytes[64];
  (void)!read(event.get(), bytes, sizeof bytes);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RequestPort>> RequestPort::Create(const shm::StateSegment* state,
                                                                 shm::ClientSegment* client,
                                                                 Descriptors descriptors,
                                                                 std::string socket) {
  GEMINID_ASSIGN_OR_RETURN(
      std::unique_ptr<RequestPort> port,
      CreateWithoutThread(state, client, std::move(descriptors), std::move(socket)));
  GEMINID_ASSIGN_OR_RETURN(port->thread_, base::StartThread([raw = port.get()] { raw->Loop(); }));
  return port;
}

absl::StatusOr<std::unique_ptr<RequestPort>> RequestPort::CreateWithoutThread(
    const shm::StateSegment* state, shm::ClientSegment* client, Descriptors descriptors,
    std::string socket) {
  base::UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return base::SystemError(errno, "eventfd", "the transfer thread");
  return std::unique_ptr<RequestPort>(
      new RequestPort(state, client, std::move(descriptors), std::move(wake), std::move(socket)));
}

RequestPort::RequestPort(const shm::StateSegment* state, shm::ClientSegment* client,
                         Descriptors descriptors, base::UniqueFd wake, std::string socket)
    : state_(state),
      client_(client),
      descriptors_(std::move(descriptors)),
      wake_(std::move(wake)),
      socket_(std::move(socket)),
      outbox_(state, client),
      responses_(state->responses, &state->cursor.responses_written,
                 &client->cursor.responses_read) {}

RequestPort::~RequestPort() { Stop(absl::CancelledError("the session ended")); }

void RequestPort::Submit(const shm::Request& request, Handler handler) {
  Send(request, std::move(handler), SendOrder::kInOrder);
}

void RequestPort::SubmitUrgent(const shm::Request& request, Handler handler) {
  Send(request, std::move(handler), SendOrder::kUrgent);
}

void RequestPort::Post(const shm::Request& request) { Send(request, nullptr, SendOrder::kInOrder); }

void RequestPort::PostWithNext(const shm::Request& request) {
  const std::lock_guard lock(mutex_);
  if (!broken_) outbox_.Add(request, nullptr, SendOrder::kInOrder);
}

void RequestPort::PostUrgent(const shm::Request& request) {
  Send(request, nullptr, SendOrder::kUrgent);
}

void RequestPort::Send(const shm::Request& request, Handler handler, SendOrder turn) {
  Answer refusal;
  {
    const std::lock_guard lock(mutex_);
    if (!broken_) {
      outbox_.Add(request, std::move(handler), turn);
      FlushLocked();
      if (outbox_.CanFlush()) WakeSelfLocked();  // the ring is full: look again
      return;
    }
    refusal.status = status_;
  }
  if (handler == nullptr) return;
  Run([handler = std::move(handler), refusal] { handler(refusal); });
}

void RequestPort::FlushLocked() {
  if (outbox_.Flush()) WakeDaemon();
}

void RequestPort::WakeDaemon() {
  if (state_->cursor.asleep.load(std::memory_order_seq_cst) != 0) {
    WriteEvent(descriptors_.daemon_event);
  }
}

// The thread announces that it sleeps before it looks for work under the mutex.
void RequestPort::WakeSelfLocked() {
  if (client_->cursor.asleep.load(std::memory_order_seq_cst) != 0) WriteEvent(wake_);
}

void RequestPort::Run(std::function<void()> call) {
  {
    const std::lock_guard lock(mutex_);
    if (phase_ != Phase::kStopped) {
      calls_.push_back(std::move(call));
      WakeSelfLocked();
      return;
    }
  }
  call();
}

absl::Status RequestPort::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

void RequestPort::Break(const absl::Status& why) {
  const std::lock_guard lock(mutex_);
  if (broken_) return;
  broken_ = true;
  status_ = why;
  WakeSelfLocked();
}

void RequestPort::Stop(const absl::Status& why) {
  {
    const std::lock_guard lock(mutex_);
    if (phase_ != Phase::kRuns) return;
    phase_ = Phase::kStopping;
    WakeSelfLocked();
  }
  if (thread_.joinable()) thread_.join();
  {
    const std::lock_guard lock(mutex_);
    phase_ = Phase::kStopped;
    if (!broken_) status_ = why;
    broken_ = true;
  }
  FailUnanswered();
  RunCalls();
}

void RequestPort::Loop() {
  PrepareThread("geminid-port");
  for (;;) {
    if (Work()) continue;
    {
      const std::lock_guard lock(mutex_);
      if (phase_ != Phase::kRuns) return;
    }
    const auto give_up = std::chrono::steady_clock::now() + kSpin;
    while (!HasResponse() && std::chrono::steady_clock::now() < give_up) {
      // Yielding would charge this thread a whole time slice for a wait of microseconds.
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
    if (!HasResponse()) Sleep();
  }
}

// True if there was anything to do.
bool RequestPort::Work() {
  client_->counters.heartbeat.fetch_add(1, std::memory_order_relaxed);
  bool worked = PumpResponses();
  {
    const std::lock_guard lock(mutex_);
    if (!broken_) FlushLocked();
  }
  FailUnanswered();
  worked |= RunCalls();
  return worked;
}

bool RequestPort::PumpResponses() {
  bool any = false;
  shm::Response response;
  while (!corrupt_) {
    switch (responses_.TryPop(&response)) {
      case decltype(responses_)::Result::kEmpty:
        return any;
      case decltype(responses_)::Result::kCorrupt:
        corrupt_ = true;
        Break(absl::InternalError(
            absl::StrCat("the daemon at ", socket_, " wrote an invalid response ring")));
        continue;
      case decltype(responses_)::Result::kEntry:
        break;
    }
    Deliver(response);
    any = true;
  }
  return any;
}

void RequestPort::Deliver(const shm::Response& response) {
  Answer answer{absl::OkStatus(), response};
  if (response.op == shm::ResponseOp::kError) answer.status = RefusedStatus(response);
  Handler handler;
  {
    const std::lock_guard lock(mutex_);
    handler = outbox_.Answered(response.request_id);
    if (handler == nullptr) {
      // Only notices fail in this way, and that means a bug on one side. Any other unexpected
      // answer is a repetition by the next daemon.
      const bool notice = RequestOutbox::IsNotice(response.request_id);
      if (notice && !answer.status.ok() && status_.ok()) {
        status_ = absl::InternalError(absl::StrCat(
            "the daemon at ", socket_,
            " refused a notice: ", shm::Name(static_cast<shm::ErrorReason>(response.error_code))));
      }
      return;
    }
  }
  handler(answer);
}

bool RequestPort::RunCalls() {
  std::vector<std::function<void()>> calls;
  {
    const std::lock_guard lock(mutex_);
    calls.swap(calls_);
  }
  for (const auto& call : calls) call();
  return !calls.empty();
}

// Once broken, no request will be answered any more.
void RequestPort::FailUnanswered() {
  std::map<uint64_t, Handler> handlers;
  absl::Status why;
  {
    const std::lock_guard lock(mutex_);
    if (!broken_) return;
    handlers = outbox_.GiveUp();
    why = status_;
  }
  for (const auto& [id, handler] : handlers) handler(Answer{why});
}

absl::Status RequestPort::DaemonEnded() const {
  std::string waited;
  {
    const std::lock_guard lock(mutex_);
    if (const auto time = outbox_.Waited(); time.count() > 0) {
      waited = absl::StrCat(", for which requests waited ",
                            absl::FormatDuration(absl::FromChrono(time)));
    }
  }
  return absl::UnavailableError(absl::StrCat(
      "the daemon at ", socket_, " ended, and ", WhySessionEnded(descriptors_.on_gpu), waited,
      "; mapped memory and leases still work, transfers and new memory need a new session"));
}

void RequestPort::Sleep() {
  client_->cursor.asleep.store(1, std::memory_order_seq_cst);
  int milliseconds = kIdleMilliseconds;
  bool awake = HasResponse();
  {
    const std::lock_guard lock(mutex_);
    awake |= !calls_.empty() || phase_ != Phase::kRuns || (broken_ && outbox_.any_unanswered());
    if (outbox_.CanFlush()) milliseconds = kBacklogMilliseconds;
  }
  if (!awake) {
    // poll ignores negative descriptors: a daemon that is gone stays gone.
    pollfd waiting[] = {{daemon_gone_ ? -1 : descriptors_.client_event.get(), POLLIN, 0},
                        {wake_.get(), POLLIN, 0},
                        {daemon_gone_ ? -1 : descriptors_.attach_socket, POLLRDHUP, 0}};
    (void)poll(waiting, std::size(waiting), milliseconds);
    if (waiting[0].revents != 0) ClearEvent(descriptors_.client_event);
    if (waiting[1].revents != 0) ClearEvent(wake_);
    if (waiting[2].revents != 0) {
      daemon_gone_ = true;
      PumpResponses();  // the daemon's last answers still count
      const bool job_ended = state_->header.phase.load(std::memory_order_acquire) ==
                             static_cast<uint32_t>(shm::Phase::kEnded);
      if (job_ended) return Break(JobEnded());
      Break(DaemonEnded());
    }
  }
  client_->cursor.asleep.store(0, std::memory_order_seq_cst);
}

}  // namespace geminid
