#include "daemon/holder/holder_store.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/child_process.h"
#include "base/status_macros.h"
#include "base/system_error.h"
#include "daemon/holder/channel.h"
#include "daemon/os/event.h"
#include "daemon/os/log.h"
#include "daemon/os/unix_socket.h"

namespace geminid::holder {
namespace {

constexpr char kBinaryName[] = "geminid-holder";
constexpr mode_t kSocketMode = 0600;
constexpr int kBacklog = 4;
// The numbers of the holder's descriptors in its own process.
constexpr int kItsListener = 3;
constexpr int kItsConnection = 4;
// The holder does nothing slow, but a holder that is stopped must not stop its daemon.
constexpr timeval kSendTimeout = {.tv_sec = 2, .tv_usec = 0};
// Sessions can only go on with the holder's descriptors. So a starting daemon waits for as long as
// a crowded machine may leave the holder, and daemons that connected before, without a processor.
constexpr int64_t kAnswerNanoseconds = 30'000'000'000;
// After this the log says what the daemon waits for.
constexpr int64_t kSilentNanoseconds = 1'000'000'000;
constexpr int64_t kNanosecondsPerMillisecond = 1'000'000;
// Between attempts to connect to a holder that has as many waiting connections as it may have.
constexpr int kPauseMs = 50;

void Bound(const base::UniqueFd& socket) {
  (void)::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &kSendTimeout, sizeof(kSendTimeout));
}

absl::Status Unusable(const std::string& path, const std::string& what) {
  return absl::FailedPreconditionError(
      absl::StrCat("the holder at ", path, " ", what,
                   "; start the release that started it, or end geminid-holder and with it the "
                   "sessions of that daemon"));
}

// A wait for a holder that may be stopped, or have no processor.
class Patience {
 public:
  explicit Patience(const HolderOptions& options) : options_(options) {}

  // Waits until `fd` is readable (OK and true), at most `milliseconds` (OK and false). Negative
  // `fd`: only waits. Errors: the wait has taken too long, or the daemon is to end.
  absl::StatusOr<bool> Wait(int fd, int64_t milliseconds) {
    const int64_t waited = os::MonotonicNanoseconds() - begin_;
    if (waited >= kAnswerNanoseconds) return Unusable(options_.socket, "does not answer");
    SayIfLong(waited);
    const int64_t next = said_ ? kAnswerNanoseconds : kSilentNanoseconds;
    const int64_t left = (next - waited) / kNanosecondsPerMillisecond + 1;
    pollfd waiting[] = {{fd, POLLIN, 0}, {options_.signals, POLLIN, 0}};
    const int ready = ::poll(waiting, 2, static_cast<int>(std::min(left, milliseconds)));
    if (ready < 0 && errno != EINTR) return base::SystemError(errno, "poll", options_.socket);
    if (ready > 0 && waiting[1].revents != 0 && options_.is_to_end && options_.is_to_end()) {
      return absl::CancelledError(absl::StrCat("told to end while it waited for the holder at ",
                                               options_.socket, " to answer"));
    }
    return ready > 0 && waiting[0].revents != 0;
  }

 private:
  void SayIfLong(int64_t waited) {
    if (said_ || waited < kSilentNanoseconds) return;
    said_ = true;
    os::Log(os::LogLevel::kWarning,
            "geminid-holder does not answer yet; the daemon waits for its answer",
            {{"socket", options_.socket},
             {"at_most", absl::StrCat(kAnswerNanoseconds / 1'000'000'000, "s")},
             {"advice", "see whether it is stopped (kill -CONT)"}});
  }

  const HolderOptions& options_;
  const int64_t begin_ = os::MonotonicNanoseconds();
  bool said_ = false;
};

absl::Status Spawn(const HolderOptions& options, const base::UniqueFd& listener,
                   const base::UniqueFd& connection) {
  base::ChildProgram program = {
      .arguments = {options.binary, "--listener-fd", absl::StrCat(kItsListener), "--daemon-fd",
                    absl::StrCat(kItsConnection), "--socket", options.socket, "--patience-ms",
                    absl::StrCat(absl::ToInt64Milliseconds(options.patience))},
      .descriptors = {{listener.get(), kItsListener}, {connection.get(), kItsConnection}},
      .reads_input = false,
      .output = "/dev/null"};
  if (options.until > 0) {
    program.arguments.insert(program.arguments.end(), {"--until", absl::StrCat(options.until)});
  }
  return base::StartChild(program).status();
}

// The kernel says which user made the listener. Another user's process would get, and give, every
// descriptor of this daemon.
absl::Status CheckOwner(const base::UniqueFd& socket, const std::string& path) {
  GEMINID_ASSIGN_OR_RETURN(const os::Peer owner, os::CredentialsOf(socket));
  const uid_t self = ::geteuid();
  if (owner.uid == self || owner.uid == 0) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      "the process that listens at ", path, " is user ", owner.uid, "'s, and this daemon is user ",
      self, "'s: it is not this daemon's geminid-holder, and the daemon sent it nothing; remove ",
      path, ", and give --socket a folder of mode 0700"));
}

// A blocking connection. UNAVAILABLE or NOT_FOUND: nobody listens there. A holder that is stopped,
// with as many waiting connections as it may have, is waited for.
absl::StatusOr<base::UniqueFd> ConnectPatiently(const HolderOptions& options) {
  Patience patience(options);
  for (;;) {
    absl::StatusOr<base::UniqueFd> socket =
        os::ConnectUnix(SOCK_SEQPACKET | SOCK_NONBLOCK, options.socket);
    if (absl::IsResourceExhausted(socket.status())) {  // no more connections may wait there
      GEMINID_RETURN_IF_ERROR(patience.Wait(-1, kPauseMs).status());
      continue;
    }
    if (!socket.ok()) return socket;
    const int flags = ::fcntl(socket->get(), F_GETFL);
    if (flags < 0 || ::fcntl(socket->get(), F_SETFL, flags & ~O_NONBLOCK) != 0) {
      return base::SystemError(errno, "fcntl", options.socket);
    }
    return socket;
  }
}

// An earlier daemon's holder; invalid: nobody listens there.
absl::StatusOr<base::UniqueFd> Connect(const HolderOptions& options) {
  absl::StatusOr<base::UniqueFd> socket = ConnectPatiently(options);
  const bool nobody = absl::IsNotFound(socket.status()) || absl::IsUnavailable(socket.status());
  if (nobody) return base::UniqueFd();
  if (!socket.ok()) return socket;
  GEMINID_RETURN_IF_ERROR(CheckOwner(*socket, options.socket));
  Bound(*socket);
  return socket;
}

}  // namespace

absl::StatusOr<std::string> FindHolder() {
  std::error_code ignored;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", ignored);
  std::string path = (self.parent_path() / kBinaryName).string();
  if (::access(path.c_str(), X_OK) == 0) return path;
  return absl::NotFoundError(
      absl::StrCat("there is no program ", path, "; install it beside geminid"));
}

absl::StatusOr<std::unique_ptr<HolderStore>> HolderStore::Open(HolderOptions options) {
  std::unique_ptr<HolderStore> store(new HolderStore(std::move(options)));
  GEMINID_ASSIGN_OR_RETURN(store->socket_, Connect(store->options_));
  if (!store->socket_.valid()) GEMINID_RETURN_IF_ERROR(store->StartHolder());
  return store;
}

absl::Status HolderStore::StartHolder() {
  // The lock is ours, so a socket there is stale, or that of a holder that does not answer.
  (void)::unlink(options_.socket.c_str());
  GEMINID_ASSIGN_OR_RETURN(const base::UniqueFd listener,
                           os::ListenSeqpacket(options_.socket, kSocketMode, kBacklog));
  os::LetDescriptorsThrough(listener);  // later daemons send descriptors over it
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return base::SystemError(errno, "socketpair", "the holder");
  }
  base::UniqueFd ours(ends[0]);
  const base::UniqueFd theirs(ends[1]);
  Bound(ours);
  GEMINID_RETURN_IF_ERROR(Spawn(options_, listener, theirs));
  socket_ = std::move(ours);
  return absl::OkStatus();
}

absl::Status HolderStore::SendLocked(const Message& message, int fd) {
  const int error = Send(socket_, message, fd);
  if (error == 0) return absl::OkStatus();
  return SendError(error);
}

absl::Status HolderStore::SendError(int error) {
  // A holder that is stuck is not waited for again. The shutdown shows its end to its watcher.
  (void)::shutdown(socket_.get(), SHUT_RDWR);
  return absl::UnavailableError(
      absl::StrCat("the holder at ", options_.socket, " does not take it: ", std::strerror(error)));
}

absl::Status HolderStore::Put(const std::string& name, int fd) {
  if (!IsName(name))
    return absl::InvalidArgumentError(absl::StrCat("'", name, "' is not a valid name"));
  const std::lock_guard lock(mutex_);
  return SendLocked({.op = Op::kPut, .name = name}, fd);
}

absl::Status HolderStore::Remove(const std::string& name) {
  if (!IsName(name))
    return absl::InvalidArgumentError(absl::StrCat("'", name, "' is not a valid name"));
  const std::lock_guard lock(mutex_);
  return SendLocked({.op = Op::kRemove, .name = name}, -1);
}

absl::StatusOr<std::vector<StoredDescriptor>> HolderStore::List() {
  const std::lock_guard lock(mutex_);
  std::vector<StoredDescriptor> kept;
  if (const int error = Send(socket_, {.op = Op::kList}); error == EPIPE || error == ECONNRESET) {
    GEMINID_RETURN_IF_ERROR(ReplaceEnded());
    return kept;
  } else if (error != 0) {
    return SendError(error);
  }
  for (;;) {
    GEMINID_RETURN_IF_ERROR(AwaitAnswer());
    ReceivedMessage arrived = Receive(socket_);
    if (arrived.kind == ReceivedMessage::Kind::kEnd && kept.empty()) {
      GEMINID_RETURN_IF_ERROR(ReplaceEnded());
      return kept;
    }
    if (arrived.kind == ReceivedMessage::Kind::kOtherVersion) {
      return Unusable(options_.socket, absl::StrCat("speaks version ", arrived.version,
                                                    ", and this daemon version ", kVersion));
    }
    if (arrived.kind != ReceivedMessage::Kind::kMessage) {
      return Unusable(options_.socket, "does not answer");
    }
    if (arrived.message.op == Op::kEnd) break;
    if (arrived.message.op != Op::kItem || !arrived.descriptor.valid()) {
      return absl::FailedPreconditionError(
          absl::StrCat("the holder at ", options_.socket, " sent an unexpected answer"));
    }
    kept.push_back({arrived.message.name, std::move(arrived.descriptor)});
  }
  return kept;
}

absl::Status HolderStore::AwaitAnswer() {
  Patience patience(options_);
  for (;;) {
    GEMINID_ASSIGN_OR_RETURN(
        const bool answered,
        patience.Wait(socket_.get(), kAnswerNanoseconds / kNanosecondsPerMillisecond));
    if (answered) return absl::OkStatus();
  }
}

// The holder hung up before it sent anything. Either no daemon came in time, and its socket is
// gone; or it speaks only another version, and still has its sessions.
absl::Status HolderStore::ReplaceEnded() {
  GEMINID_ASSIGN_OR_RETURN(const base::UniqueFd still_there, Connect(options_));
  if (!still_there.valid()) return StartHolder();
  return Unusable(options_.socket,
                  absl::StrCat("hangs up on this daemon, which speaks version ", kVersion));
}

void HolderStore::Finish() {
  const std::lock_guard lock(mutex_);
  (void)Send(socket_, {.op = Op::kFinish});
}

absl::Status HolderStore::Renew() {
  const std::lock_guard lock(mutex_);
  return StartHolder();
}

}  // namespace geminid::holder
