#include "training/launch/remote_host.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/clock.h"
#include "base/standard_streams.h"
#include "base/status_macros.h"
#include "base/system_error.h"
#include "training/launch/host_agent.h"

namespace geminid::trainer {
namespace {

constexpr size_t kMaxLinesBytes = 1 << 20;  // the limit of a login shell's output
constexpr size_t kLastErrorsBytes = 2048;
constexpr absl::Duration kEndPatience = absl::Seconds(5);
constexpr absl::Duration kExitPatience = absl::Milliseconds(200);
// An agent checks its clock ten times a second. It kills its ranks when the launcher is silent.
constexpr absl::Duration kKillPatience = absl::Seconds(1);
constexpr int kExecFailed = 127;                        // the code that shells use
constexpr size_t kMostUnsentBytes = size_t{512} << 10;  // beyond this, pieces of state wait
constexpr int kPiecesAhead = 8;  // pieces of state that may arrive before TakePiece()

// Quotes the text for the shell of any host.
std::string Quoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

std::vector<std::string> CommandOf(const RemoteHostOptions& options) {
  if (options.remote_shell.empty()) return {options.program, "host"};
  std::vector<std::string> words = options.remote_shell;
  words.push_back(options.name);
  words.push_back(absl::StrCat("exec ", Quoted(options.program), " host"));
  return words;
}

// Runs in the child between fork and exec; there are no other threads yet. The child gets its own
// session, so that a terminal's signals reach only this process, which passes them on.
[[noreturn]] void BecomeShell(const std::vector<char*>& argv, pid_t parent, int in, int out,
                              int errors) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kExecFailed);
  setsid();
  base::RestoreStreamSignals();
  sigset_t none;  // the process that starts ranks blocks some signals
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(errors, STDERR_FILENO);
  execvp(argv[0], argv.data());
  constexpr char kMessage[] = "there is no such program\n";
  (void)!write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
  _exit(kExecFailed);
}

absl::Status MakePair(bool socket, base::UniqueFd* ours, base::UniqueFd* theirs) {
  int fds[2];
  // For our output we use a socket: a closed socket does not kill us by SIGPIPE.
  const int rc =
      socket ? socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) : pipe2(fds, O_CLOEXEC);
  if (rc != 0) return base::SystemError(errno, socket ? "socketpair" : "pipe2", "for a host");
  *ours = base::UniqueFd(fds[0]);
  *theirs = base::UniqueFd(fds[1]);
  fcntl(ours->get(), F_SETFL, O_NONBLOCK);
  return absl::OkStatus();
}

// Reads everything that is there now. At the end of the stream the descriptor is closed.
std::string ReadAll(base::UniqueFd* fd) {
  std::string text;
  char buffer[16 * 1024];
  for (;;) {
    const ssize_t count = read(fd->get(), buffer, sizeof(buffer));
    if (count > 0) {
      text.append(buffer, static_cast<size_t>(count));
    } else if (count == 0) {
      fd->Reset();
      return text;
    } else if (errno != EINTR) {
      return text;
    }
  }
}

std::vector<std::string> Entries(const Variables& variables) {
  std::vector<std::string> entries;
  for (const auto& [name, value] : variables) entries.push_back(absl::StrCat(name, "=", value));
  return entries;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RemoteHost>> RemoteHost::Start(RemoteHostOptions options) {
  base::UniqueFd to, in, from, out, errors, errors_out;
  GEMINID_RETURN_IF_ERROR(MakePair(/*socket=*/true, &to, &in));
  GEMINID_RETURN_IF_ERROR(MakePair(/*socket=*/false, &from, &out));
  GEMINID_RETURN_IF_ERROR(MakePair(/*socket=*/false, &errors, &errors_out));
  std::vector<std::string> words = CommandOf(options);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) BecomeShell(argv, parent, in.get(), out.get(), errors_out.get());
  if (pid < 0) return base::SystemError(errno, "fork", absl::StrCat("for host ", options.name));
  return std::unique_ptr<RemoteHost>(
      new RemoteHost(std::move(options), pid, std::move(to), std::move(from), std::move(errors)));
}

RemoteHost::RemoteHost(RemoteHostOptions options, pid_t shell, base::UniqueFd to,
                       base::UniqueFd from, base::UniqueFd errors)
    : options_(std::move(options)),
      shell_(shell),
      from_(std::move(from)),
      errors_(std::move(errors)),
      heard_at_(base::MonotonicNow()),
      outgoing_{.to = std::move(to)} {}

// The agent ends when its input closes, and needs a moment to end a daemon that it started. A host
// that was never ready may not answer at all, so this does not wait for it.
RemoteHost::~RemoteHost() {
  outgoing_.to.Reset();
  const absl::Time deadline =
      failure_.ok() && ready() ? base::MonotonicNow() + kEndPatience : absl::InfinitePast();
  while (waitpid(shell_, nullptr, WNOHANG) == 0) {
    if (base::MonotonicNow() >= deadline) {
      kill(shell_, SIGKILL);
      waitpid(shell_, nullptr, 0);
      return;
    }
    pollfd end = {from_.get(), 0, 0};
    poll(&end, 1, 10);
  }
}

absl::Status RemoteHost::Start(const std::vector<RankStart>& starts) {
  GEMINID_RETURN_IF_ERROR(failure_);
  ranks_.clear();
  state_.wanted.reset();  // the request of the earlier ranks
  for (const RankStart& start : starts) {
    ranks_.emplace_back(start.rank, options_.name);
    HostFrame frame{.type = HostFrameType::kStart,
                    .fields = {absl::StrCat(start.rank), absl::StrCat(start.ranks)}};
    AppendList(Entries(start.environment), &frame);
    frame.fields.insert(frame.fields.end(), start.arguments.begin(), start.arguments.end());
    Send(frame);
  }
  Send({.type = HostFrameType::kStart});
  return absl::OkStatus();
}

std::vector<RankState*> RemoteHost::ranks() {
  std::vector<RankState*> ranks;
  for (RankState& rank : ranks_) ranks.push_back(&rank);
  return ranks;
}

void RemoteHost::Signal(int signal) {
  Send({.type = HostFrameType::kSignal, .fields = {absl::StrCat(signal)}});
}

void RemoteHost::AddTo(std::vector<pollfd>* fds) const {  // poll ignores negative descriptors
  fds->push_back({from_.get(), POLLIN, 0});
  fds->push_back({errors_.get(), POLLIN, 0});
  std::lock_guard lock(outgoing_.mutex);
  if (failure_.ok() && !outgoing_.unsent.empty()) fds->push_back({outgoing_.to.get(), POLLOUT, 0});
}

absl::Time RemoteHost::look_by() const {
  return ready() && failure_.ok() ? heard_at_ + options_.silence : absl::InfiniteFuture();
}

void RemoteHost::Look(absl::Time now) {
  {
    std::lock_guard lock(outgoing_.mutex);
    Flush();
  }
  ReadErrors();
  ReadFrames(now);
  if (!ready() || !failure_.ok() || now - heard_at_ <= options_.silence) return;
  Fail(absl::UnavailableError(absl::StrCat("nothing was heard from ", options_.name, " for ",
                                           absl::FormatDuration(options_.silence))));
}

void RemoteHost::Leave() {
  std::lock_guard lock(outgoing_.mutex);
  outgoing_.to.Reset();
  outgoing_.unsent.clear();
}

void RemoteHost::Adopt(const std::optional<Handover>& handover) {
  Send({.type = HostFrameType::kAdopt, .fields = TextsOf(handover, base::MonotonicNow())});
}

void RemoteHost::Answer(uint64_t request, const absl::Status& status) {
  Send({.type = HostFrameType::kAnswer,
        .fields = {absl::StrCat(request), absl::StrCat(status.raw_code()),
                   std::string(status.message())}});
}

void RemoteHost::Tell(const MoveOutcome& outcome) {
  Send({.type = HostFrameType::kTell,
        .fields = {absl::StrCat(outcome.request), outcome.state, outcome.message}});
}

void RemoteHost::BeginToSend() {
  state_.pieces.clear();
  Send({.type = HostFrameType::kFetch, .fields = {absl::StrCat(kPiecesAhead), "anew"}});
}

std::optional<std::string> RemoteHost::TakePiece() {
  if (state_.pieces.empty()) return std::nullopt;
  std::string piece = std::move(state_.pieces.front());
  state_.pieces.pop_front();
  Send({.type = HostFrameType::kFetch, .fields = {"1", ""}});
  return piece;
}

void RemoteHost::BeginToReceive(const Handover& handover) {
  Send({.type = HostFrameType::kReceive, .fields = TextsOf(handover, base::MonotonicNow())});
}

// Unsent data delays a beat, but also counts as one when it arrives.
bool RemoteHost::takes_piece() const {
  std::lock_guard lock(outgoing_.mutex);
  return outgoing_.unsent.size() < kMostUnsentBytes;
}

void RemoteHost::AddPiece(const std::string& piece) {
  Send({.type = HostFrameType::kPiece, .fields = {piece}});
}

void RemoteHost::Beat() {
  std::lock_guard lock(outgoing_.mutex);
  if (outgoing_.unsent.empty()) outgoing_.unsent = Encode({.type = HostFrameType::kBeat});
  Flush();
}

void RemoteHost::Send(const HostFrame& frame) {
  std::lock_guard lock(outgoing_.mutex);
  if (!outgoing_.to.valid()) return;
  outgoing_.unsent += Encode(frame);
  Flush();
}

void RemoteHost::Flush() {
  size_t sent = 0;
  while (sent < outgoing_.unsent.size() && outgoing_.to.valid()) {
    const ssize_t count = send(outgoing_.to.get(), &outgoing_.unsent[sent],
                               outgoing_.unsent.size() - sent, MSG_NOSIGNAL);
    if (count > 0) {
      sent += static_cast<size_t>(count);
      outgoing_.sent_at = base::MonotonicNow();
    } else if (errno != EINTR) {
      break;  // the next call sends the rest; a closed connection is noticed by reading
    }
  }
  outgoing_.unsent.erase(0, sent);
}

void RemoteHost::ReadErrors() {
  if (!errors_.valid()) return;
  last_errors_ += ReadAll(&errors_);
  if (last_errors_.size() > kLastErrorsBytes) {
    last_errors_.erase(0, last_errors_.size() - kLastErrorsBytes);
  }
}

void RemoteHost::ReadFrames(absl::Time now) {
  if (!from_.valid()) return;
  const std::string bytes = ReadAll(&from_);
  if (!bytes.empty()) heard_at_ = now;
  if (!failure_.ok()) return;
  if (const absl::Status status = OnBytes(bytes); !status.ok()) return Fail(status);
  if (!from_.valid()) Fail(absl::UnavailableError(DescribeShellsEnd()));
}

absl::Status RemoteHost::OnBytes(const std::string& bytes) {
  if (phase_ != Phase::kGreeting) {
    reader_.Append(bytes);
  } else {
    lines_ += bytes;
  }
  while (phase_ == Phase::kGreeting) {
    const size_t end = lines_.find('\n');
    if (end == std::string::npos) {
      if (lines_.size() <= kMaxLinesBytes) return absl::OkStatus();
      return absl::FailedPreconditionError(
          absl::StrCat(options_.name,
                       " sent output without the greeting of geminid-train; let the remote shell's "
                       "startup files print nothing"));
    }
    const std::optional<ProgramVersion> version = ParseGreeting(lines_.substr(0, end));
    lines_.erase(0, end + 1);
    if (!version.has_value()) continue;
    GEMINID_RETURN_IF_ERROR(OnGreeting(*version));
    reader_.Append(std::exchange(lines_, std::string()));
  }
  for (;;) {
    GEMINID_ASSIGN_OR_RETURN(const std::optional<HostFrame> frame, reader_.Next());
    if (!frame.has_value()) return absl::OkStatus();
    GEMINID_RETURN_IF_ERROR(OnFrame(*frame));
  }
}

absl::Status RemoteHost::OnGreeting(const ProgramVersion& version) {
  const ProgramVersion& own = options_.version;
  if (version != own) {
    const std::string theirs =
        version.version == own.version
            ? absl::StrCat("another build of geminid-train ", own.version)
            : absl::StrCat("geminid-train ", version.version, " where this one is ", own.version);
    return absl::FailedPreconditionError(absl::StrCat(options_.name, " has ", theirs, ", at ",
                                                      options_.program,
                                                      "; install the same on all hosts"));
  }
  HostFrame prepare{
      .type = HostFrameType::kPrepare,
      .fields = {absl::StrCat(options_.ranks), absl::StrCat(options_.ranks_here),
                 absl::StrCat(absl::ToInt64Milliseconds(options_.silence)), options_.folder}};
  AppendList(options_.environment, &prepare);
  AppendList(TextsOf(options_.move), &prepare);
  prepare.fields.insert(prepare.fields.end(), options_.arguments.begin(), options_.arguments.end());
  Send(prepare);
  phase_ = Phase::kPreparing;
  return absl::OkStatus();
}

absl::Status RemoteHost::OnFrame(const HostFrame& frame) {
  FieldReader fields(frame);
  switch (frame.type) {
    case HostFrameType::kReady:
      phase_ = Phase::kReady;
      return absl::OkStatus();
    case HostFrameType::kRefused: {
      GEMINID_ASSIGN_OR_RETURN(const int code, fields.Number());
      GEMINID_ASSIGN_OR_RETURN(const std::string message, fields.Text());
      if (code == 0) return absl::InternalError(absl::StrCat(options_.name, " refused with OK"));
      return absl::Status(static_cast<absl::StatusCode>(code),
                          absl::StrCat(options_.name, ": ", message));
    }
    case HostFrameType::kHandover: {
      GEMINID_ASSIGN_OR_RETURN(state_.handover, HandoverFrom(frame.fields, base::MonotonicNow()));
      return absl::OkStatus();
    }
    case HostFrameType::kWanted: {
      GEMINID_ASSIGN_OR_RETURN(state_.wanted, MoveFrom(frame.fields));
      return absl::OkStatus();
    }
    case HostFrameType::kPiece: {
      GEMINID_ASSIGN_OR_RETURN(std::string piece, fields.Text());
      if (state_.pieces.size() < kPiecesAhead) state_.pieces.push_back(std::move(piece));
      return absl::OkStatus();
    }
    case HostFrameType::kJobEnded:
      state_.job_ended = true;
      return absl::OkStatus();
    case HostFrameType::kStarted:
    case HostFrameType::kWords:
    case HostFrameType::kEnded:
      break;
    default:
      return absl::OkStatus();
  }
  GEMINID_ASSIGN_OR_RETURN(const int number, fields.Number());
  RankState* const rank = RankOf(number);
  if (rank == nullptr) return absl::OkStatus();
  if (frame.type == HostFrameType::kWords) {
    GEMINID_ASSIGN_OR_RETURN(const std::string words, fields.Text());
    rank->AddWords(words);
    return absl::OkStatus();
  }
  GEMINID_ASSIGN_OR_RETURN(const int value, fields.Number());
  if (frame.type == HostFrameType::kStarted) {
    rank->Started(value);
    return absl::OkStatus();
  }
  GEMINID_ASSIGN_OR_RETURN(const std::string done, fields.Text());
  rank->Ended(value, done == "done");
  return absl::OkStatus();
}

RankState* RemoteHost::RankOf(int rank) {
  const auto found = std::find_if(ranks_.begin(), ranks_.end(),
                                  [&](const RankState& state) { return state.rank() == rank; });
  return found == ranks_.end() ? nullptr : &*found;
}

// Sends nothing more to the agent, which then ends its ranks by itself.
void RemoteHost::Fail(const absl::Status& status) {
  failure_ = status;
  {
    std::lock_guard lock(outgoing_.mutex);
    outgoing_.to.Reset();
    outgoing_.unsent.clear();
    const bool had_ranks =
        std::ranges::any_of(ranks_, [](const RankState& rank) { return rank.running(); });
    if (had_ranks) ends_by_ = outgoing_.sent_at + options_.silence + kKillPatience;
  }
  for (RankState& rank : ranks_) rank.Lost(std::string(status.message()));
}

void RemoteHost::GiveUp(absl::Duration waited) {
  const char* const what = phase_ == Phase::kGreeting ? " did not answer within "
                                                      : " was not ready for its ranks within ";
  Fail(absl::DeadlineExceededError(absl::StrCat(options_.name, what, absl::FormatDuration(waited),
                                                last_errors_.empty() ? "" : ": ", last_errors_)));
}

std::string RemoteHost::DescribeShellsEnd() {
  siginfo_t end = {};
  const absl::Time deadline = base::MonotonicNow() + kExitPatience;
  while (waitid(P_PID, static_cast<id_t>(shell_), &end, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         end.si_pid == 0 && base::MonotonicNow() < deadline) {
    poll(nullptr, 0, 5);
  }
  ReadErrors();
  std::string words = std::string(absl::StripAsciiWhitespace(last_errors_));
  if (words.empty()) words = "it said nothing";
  const std::string how = end.si_pid == 0 ? "closed the connection"
                          : end.si_code == CLD_EXITED
                              ? absl::StrCat("ended with code ", end.si_status)
                              : absl::StrCat("was killed by signal ", end.si_status);
  const std::string what =
      options_.remote_shell.empty()
          ? "the program there"
          : absl::StrCat("\"", absl::StrJoin(options_.remote_shell, " "), "\"");
  if (phase_ == Phase::kGreeting) {
    return absl::StrCat(options_.name, " cannot be reached, or has no ", options_.program, ": ",
                        what, " ", how, ": ", words);
  }
  return absl::StrCat("the connection to ", options_.name, " ended: ", what, " ", how, ": ", words);
}

HeartbeatSender::HeartbeatSender(std::vector<RemoteHost*> hosts) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for the main thread
  thread_ = std::jthread([hosts = std::move(hosts)](const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any changed;
    std::unique_lock lock(mutex);
    while (!stop.stop_requested()) {
      for (RemoteHost* host : hosts) host->Beat();
      changed.wait_for(lock, stop, absl::ToChronoMilliseconds(kBeatInterval), [] { return false; });
    }
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

HeartbeatSender::~HeartbeatSender() = default;

absl::Status AwaitHosts(const std::vector<RankHost*>& hosts, absl::Duration patience) {
  const absl::Time deadline = base::MonotonicNow() + patience;
  const auto waits = [](const RankHost* host) { return !host->ready() && host->failure().ok(); };
  while (std::any_of(hosts.begin(), hosts.end(), waits)) {
    const absl::Duration left = deadline - base::MonotonicNow();
    if (left <= absl::ZeroDuration()) {
      for (RankHost* host : hosts) {
        if (waits(host)) host->GiveUp(patience);
      }
      break;
    }
    std::vector<pollfd> fds;
    for (const RankHost* host : hosts) host->AddTo(&fds);
    poll(fds.data(), fds.size(),
         static_cast<int>(absl::ToInt64Milliseconds(std::min(left, kBeatInterval))) + 1);
    for (RankHost* host : hosts) host->Look(base::MonotonicNow());
  }
  absl::Status first;
  std::vector<std::string> words;
  for (const RankHost* host : hosts) {
    if (host->failure().ok()) continue;
    if (first.ok()) first = host->failure();
    words.emplace_back(host->failure().message());
  }
  if (first.ok()) return first;
  return absl::Status(first.code(), absl::StrJoin(words, "\n"));
}

}  // namespace geminid::trainer
