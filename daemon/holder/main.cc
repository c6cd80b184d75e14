// geminid-holder: stores a daemon's descriptors, so that memory and connections outlive it.
//
// The daemon starts it, and hands it their connection and a listener for later daemons. It
// serves one daemon at a time: it accepts the next when the last has ended, after reading
// all that one sent. It ends when it is told to. Without a daemon it ends when it stores
// nothing, when no daemon has come for --patience-ms, or when the process of --until has
// ended.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "base/exit_code.h"
#include "base/job_signals.h"
#include "base/standard_streams.h"
#include "daemon/holder/channel.h"
#include "daemon/holder/descriptor_table.h"

namespace geminid::holder {
namespace {

// A starting daemon reads the descriptors as soon as a crowded machine gives it a processor. A
// daemon that has died ends the wait at once.
constexpr timeval kSendTimeout = {.tv_sec = 30, .tv_usec = 0};
constexpr int64_t kNanosecondsPerMillisecond = 1'000'000;
constexpr int64_t kLookMs = 200;  // between checks whether its socket exists

constexpr char kHelp[] =
    R"(geminid-holder: holds a daemon's descriptors until the next daemon takes them; geminid starts it
Usage: geminid-holder --listener-fd N --daemon-fd N --socket PATH [OPTIONS]

Options:
  --listener-fd N             Descriptor on which the next daemon connects
  --daemon-fd N               Descriptor of the connection to the daemon
  --socket PATH               Path of that listener; this program ends when the path is removed
  --patience-ms MS=0          How long to wait for the next daemon
  --until PID                 End without a daemon as soon as this process has ended
  --version                   Print the version and end
  --help                      Print this and end
)";

struct CommandLine {
  int listener = -1;
  int daemon = -1;
  long patience_ms = 0;
  long until = 0;  // 0: no process
  std::string socket;
};

int64_t NowMs() {
  timespec now;
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / kNanosecondsPerMillisecond;
}

bool ParseNumber(const char* text, long* number) {
  char* end = nullptr;
  errno = 0;
  *number = std::strtol(text, &end, 10);
  return errno == 0 && end != text && *end == '\0' && *number >= 0;
}

bool Parse(int argc, char** argv, CommandLine* line) {
  long listener = -1;
  long daemon = -1;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    const char* const value = argv[i + 1];
    bool good = true;
    if (flag == "--listener-fd") {
      good = ParseNumber(value, &listener);
    } else if (flag == "--daemon-fd") {
      good = ParseNumber(value, &daemon);
    } else if (flag == "--patience-ms") {
      good = ParseNumber(value, &line->patience_ms);
    } else if (flag == "--until") {
      good = ParseNumber(value, &line->until);
    } else if (flag == "--socket") {
      line->socket = value;
    } else {
      good = false;
    }
    if (!good) return false;
  }
  line->listener = static_cast<int>(listener);
  line->daemon = static_cast<int>(daemon);
  return argc % 2 == 1 && listener >= 0 && daemon >= 0 && !line->socket.empty();
}

// The holder needs as many descriptors as several daemons in a row had open.
void RaiseDescriptorLimit() {
  rlimit limit;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

// Only this user's processes, and root's, are daemons of this socket.
bool IsOurs(const base::UniqueFd& connection) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  return ::getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         (peer.uid == ::geteuid() || peer.uid == 0);
}

class Holder {
 public:
  explicit Holder(const CommandLine& line)
      : socket_(line.socket), patience_ms_(line.patience_ms), listener_(line.listener) {
    if (line.until > 0) {
      until_ = base::UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, line.until, 0)));
      until_has_ended_ = !until_.valid() && errno == ESRCH;
    }
    (void)::stat(socket_.c_str(), &file_);
    Meet(base::UniqueFd(line.daemon));
  }

  void Run() {
    while (!finished_) {
      if (daemon_.valid()) {
        Serve();
      } else if (until_has_ended_ || table_.items().empty() || NowMs() >= alone_until_ms_) {
        finished_ = true;
      } else {
        WaitForDaemon();
      }
    }
    // After kFinish no daemon connects any more; another holder's socket may be there by then.
    if (!told_ && HasSocket()) (void)::unlink(socket_.c_str());
  }

 private:
  void Meet(base::UniqueFd daemon) {
    daemon_ = std::move(daemon);
    (void)::fcntl(daemon_.get(), F_SETFD, FD_CLOEXEC);
    (void)::setsockopt(daemon_.get(), SOL_SOCKET, SO_SNDTIMEO, &kSendTimeout, sizeof(kSendTimeout));
  }

  // False: the socket is missing, or another holder's by now.
  bool HasSocket() const {
    struct stat now = {};
    return ::stat(socket_.c_str(), &now) == 0 && now.st_ino == file_.st_ino &&
           now.st_dev == file_.st_dev;
  }

  void Leave() {
    daemon_.Reset();
    alone_until_ms_ = NowMs() + patience_ms_;
  }

  void Serve() {
    ReceivedMessage arrived = Receive(daemon_);
    if (arrived.kind == ReceivedMessage::Kind::kNothing) return;
    if (arrived.kind == ReceivedMessage::Kind::kEnd) return Leave();
    if (arrived.kind == ReceivedMessage::Kind::kOtherVersion) return TellVersion(arrived.version);
    const DescriptorTable::Next next =
        arrived.kind == ReceivedMessage::Kind::kMessage
            ? table_.Handle(arrived.message, std::move(arrived.descriptor))
            : DescriptorTable::Next::kRefuse;
    if (next == DescriptorTable::Next::kFinish) finished_ = told_ = true;
    const bool refused = next == DescriptorTable::Next::kRefuse ||
                         (next == DescriptorTable::Next::kList && !SendAll());
    if (!refused) return;
    std::fprintf(stderr, "geminid-holder: the daemon of %s broke off\n", socket_.c_str());
    Leave();
  }

  // Closes no stored descriptor: a daemon that speaks this version may come.
  void TellVersion(unsigned theirs) {
    (void)Send(daemon_, {.op = Op::kOtherVersion});
    std::fprintf(stderr,
                 "geminid-holder: the daemon of %s speaks version %u, this holder version %u\n",
                 socket_.c_str(), theirs, unsigned{kVersion});
    Leave();
  }

  bool SendAll() {
    for (const auto& [name, descriptor] : table_.items()) {
      if (Send(daemon_, {.op = Op::kItem, .name = name}, descriptor.get()) != 0) return false;
    }
    const auto count = static_cast<uint32_t>(table_.items().size());
    return Send(daemon_, {.op = Op::kEnd, .count = count}) == 0;
  }

  void WaitForDaemon() {
    pollfd waiting[] = {{listener_.get(), POLLIN, 0}, {until_.get(), POLLIN, 0}};
    const int64_t left_ms = std::clamp<int64_t>(alone_until_ms_ - NowMs(), 0, kLookMs);
    (void)::poll(waiting, 2, static_cast<int>(left_ms));
    // If the socket or its folder was removed, nobody wants the descriptors any more.
    until_has_ended_ = waiting[1].revents != 0 || !HasSocket();
    if (waiting[0].revents == 0) return;
    base::UniqueFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (connection.valid() && IsOurs(connection)) Meet(std::move(connection));
  }

  const std::string socket_;
  struct stat file_ = {};  // of the socket
  const long patience_ms_;
  const base::UniqueFd listener_;
  base::UniqueFd daemon_;  // invalid: there is none
  base::UniqueFd until_;   // of the process; invalid: of none
  bool until_has_ended_ = false;
  int64_t alone_until_ms_ = 0;
  bool finished_ = false;
  bool told_ = false;  // by the daemon
  DescriptorTable table_;
};

}  // namespace
}  // namespace geminid::holder

int main(int argc, char** argv) {
  geminid::base::PrepareStandardStreams();
  const std::string word = argc == 2 ? argv[1] : "";
  if (word == "--help" || word == "--version") {
    const char* const text =
        word == "--help" ? geminid::holder::kHelp : "geminid-holder " GEMINID_VERSION "\n";
    const bool written = std::fputs(text, stdout) >= 0 && std::fflush(stdout) == 0;
    return written ? geminid::base::kDaemonExitOk : geminid::base::kDaemonExitInternal;
  }
  geminid::holder::CommandLine line;
  if (!geminid::holder::Parse(argc, argv, &line)) {
    std::fputs(geminid::holder::kHelp, stderr);
    return geminid::base::kDaemonExitUsage;
  }
  // It ends with its daemon, not with the terminal or the job that both were started in.
  geminid::base::IgnoreJobSignals();
  ::setsid();
  geminid::holder::RaiseDescriptorLimit();
  geminid::holder::Holder(line).Run();
  return geminid::base::kDaemonExitOk;
}
