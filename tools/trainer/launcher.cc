#include "tools/trainer/launcher.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <random>
#include <set>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "tools/trainer/rank_process.h"
#include "tools/trainer/restarts.h"
#include "tools/trainer/stop_signals.h"

extern char** environ;

namespace geminid::trainer {
namespace {

constexpr char kProgramName[] = "geminid-train";
constexpr char kLauncherVariable[] = "GEMINID_LAUNCHER_PID";
constexpr size_t kProcessNameMax = 15;  // of the kernel
constexpr int kLastWordsLines = 20;

// Names are what distinguishes two jobs of one user on one host.
std::string RandomJobId() {
  std::random_device random;
  return absl::StrFormat("%08x%08x", random(), random());
}

std::vector<std::string> EnvironmentOf(const LaunchOptions& options, int rank,
                                       const std::string& job_id, const Restarts& restarts) {
  std::vector<std::pair<std::string, std::string>> added = options.environment;
  if (restarts.most > 0) {
    added.insert(added.end(), {{kRestartCountVariable, absl::StrCat(restarts.count)},
                               {kMaxRestartsVariable, absl::StrCat(restarts.most)}});
  }
  if (restarts.failed_at.has_value()) {
    added.emplace_back(kFailedAtVariable, absl::StrCat(absl::ToUnixNanos(*restarts.failed_at)));
  }
  added.insert(added.end(), {{"RANK", absl::StrCat(rank)},
                             {"WORLD_SIZE", absl::StrCat(options.ranks)},
                             {"LOCAL_RANK", absl::StrCat(rank)},
                             {"LOCAL_WORLD_SIZE", absl::StrCat(options.ranks)},
                             {"MASTER_ADDR", "127.0.0.1"},
                             {"GEMINID_JOB_ID", job_id},
                             {kLauncherVariable, absl::StrCat(getpid())}});
  std::set<std::string> names;
  std::vector<std::string> environment;
  for (const auto& [name, value] : added) {
    names.insert(name);
    environment.push_back(absl::StrCat(name, "=", value));
  }
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (!names.contains(text.substr(0, text.find('=')))) environment.push_back(text);
  }
  return environment;
}

// The last lines, each on its own and indented.
std::string Indented(const std::string& words) {
  std::vector<std::string> lines =
      absl::StrSplit(words, absl::ByAnyChar("\r\n"), absl::SkipEmpty());
  const size_t first = lines.size() - std::min<size_t>(lines.size(), kLastWordsLines);
  std::string text;
  for (size_t i = first; i < lines.size(); ++i) absl::StrAppend(&text, "  ", lines[i], "\n");
  return text;
}

// Lower is more likely to be the reason why the job failed.
constexpr int kStoppedGuilt = 2;
int Guilt(const RankProcess& process) {
  const int status = *process.wait_status();
  if (WIFSIGNALED(status)) return 0;
  return WEXITSTATUS(status) == base::kExitAborted || WEXITSTATUS(status) == base::kExitUnavailable
             ? kStoppedGuilt
             : 1;
}

// The code of an end that is no failure of this rank's own: all ranks end like this together.
std::optional<int> AgreedEnd(int wait_status) {
  if (!WIFEXITED(wait_status)) return std::nullopt;
  const int code = WEXITSTATUS(wait_status);
  if (code == base::kExitDiverged) return code;
  for (const int signal : kStopSignals) {
    if (code == base::kExitSignalBase + signal) return code;
  }
  return std::nullopt;
}

// Whether another start may not meet it again.
bool IsPassing(int wait_status) {
  if (WIFSIGNALED(wait_status)) return true;
  switch (WEXITSTATUS(wait_status)) {
    case base::kExitFailed:
    case base::kExitUnavailable:
    case base::kExitDeadline:
    case base::kExitAborted:
      return true;
    default:
      return false;
  }
}

// One start of all ranks.
class Launcher {
 public:
  Launcher(const LaunchOptions& options, int signal_fd, Restarts restarts)
      : options_(options), signal_fd_(signal_fd), restarts_(restarts) {}

  absl::Status Start(const std::string& job_id, const sigset_t& signal_mask) {
    std::vector<std::string> arguments = {""};
    arguments.insert(arguments.end(), options_.arguments.begin(), options_.arguments.end());
    processes_.reserve(static_cast<size_t>(options_.ranks));
    for (int rank = 0; rank < options_.ranks; ++rank) {
      arguments[0] = RankName(rank);
      GEMINID_ASSIGN_OR_RETURN(
          RankProcess process,
          RankProcess::Start(rank, options_.program, arguments,
                             EnvironmentOf(options_, rank, job_id, restarts_), signal_mask));
      processes_.push_back(std::move(process));
    }
    return absl::OkStatus();
  }

  // Returns when all ranks have ended.
  void Run() {
    PollUntil([&] { return Over() || failed_ || policy_.first() != 0; }, absl::InfiniteFuture());
    // A failure spreads: whoever notices it ends with words of its own, or the signal that ended
    // one rank was for all of us.
    if (failed_) {
      PollUntil([&] { return Over() || policy_.first() != 0; }, absl::Now() + options_.settle_time);
    }
    if (policy_.first() != 0 && !Over()) {
      for (const RankProcess& process : processes_) process.Signal(policy_.first());
      PollUntil([&] { return Over() || failed_ || at_once_; }, absl::InfiniteFuture());
      PollUntil([&] { return Over() || at_once_; }, absl::Now() + options_.settle_time);
    }
    if (!Over()) Stop();
    for (RankProcess& process : processes_) Listen(process);
    ReadSignals();
  }

  // Nothing: it must not be started again. Else how.
  std::optional<Restarts> Again() const {
    if (!restarts_.keeps() || ended_badly_.empty() || policy_.first() != 0 || IsDone()) return {};
    if (!IsPassing(*Culprit().wait_status())) return {};
    return Restarts{restarts_.count + 1, restarts_.most, failed_at_};
  }

  void SayAgain() const {
    options_.write_stderr(absl::StrCat(kProgramName, ": ", DescribeCulprit(),
                                       "; all ranks are started again (", restarts_.count + 1,
                                       " of ", restarts_.most,
                                       "), to go on from what they left in memory\n"));
  }

  int Judge() {
    if (at_once_) return base::kExitSignalBase + policy_.first();
    if (ended_badly_.empty()) return agreed_end_;
    const RankProcess& culprit = Culprit();
    // Those that the signal killed are missed by the others.
    if (agreed_end_ != base::kExitOk && Guilt(culprit) == kStoppedGuilt) return agreed_end_;
    if (restarts_.most > 0 && IsDone()) {
      options_.write_stderr(
          absl::StrCat(kProgramName, ": ", DescribeCulprit(), " after the run was done\n"));
      return base::kExitOk;
    }
    std::string words =
        absl::StrCat(kProgramName, ": ", DescribeCulprit(), "; the other ranks were stopped\n");
    // Rank 0's words were passed on already.
    if (culprit.rank() != 0 && !culprit.last_words().empty()) {
      absl::StrAppend(&words, "Its last words:\n", Indented(culprit.last_words()));
    }
    options_.write_stderr(words);
    const int status = *culprit.wait_status();
    return WIFEXITED(status) ? WEXITSTATUS(status) : base::kExitFailed;
  }

 private:
  const RankProcess& Culprit() const {
    return **std::min_element(ended_badly_.begin(), ended_badly_.end(),
                              [](const auto* a, const auto* b) { return Guilt(*a) < Guilt(*b); });
  }

  std::string DescribeCulprit() const {
    const RankProcess& culprit = Culprit();
    return absl::StrCat("rank ", culprit.rank(), " (pid ", culprit.pid(), ") ",
                        culprit.DescribeEnd());
  }

  // Ranks end well together, after the last of them has done its part. One that was killed on its
  // way out has nothing left in memory to go on from, and need not go on.
  bool IsDone() const {
    return std::any_of(processes_.begin(), processes_.end(), [](const RankProcess& process) {
      return process.said_done() || process.wait_status() == std::optional<int>(0);
    });
  }

  bool Over() const {
    return std::none_of(processes_.begin(), processes_.end(),
                        [](const RankProcess& process) { return process.running(); });
  }

  template <typename Done>
  void PollUntil(const Done& done, absl::Time deadline) {
    while (!done()) {
      const absl::Duration left = deadline - absl::Now();
      if (left <= absl::ZeroDuration()) return;
      PollOnce(left);
    }
  }

  void PollOnce(absl::Duration at_most) {
    std::vector<pollfd> fds = {{signal_fd_, POLLIN, 0}};
    for (const RankProcess& process : processes_) {  // poll passes over negative descriptors
      fds.push_back({process.process_fd(), POLLIN, 0});
      fds.push_back({process.stderr_fd(), POLLIN, 0});
    }
    constexpr absl::Duration kLongest = absl::Hours(1);
    const int64_t milliseconds = absl::ToInt64Milliseconds(std::min(at_most, kLongest)) + 1;
    if (poll(fds.data(), fds.size(), static_cast<int>(milliseconds)) <= 0) return;
    if (fds[0].revents != 0) ReadSignals();
    for (RankProcess& process : processes_) {
      Listen(process);
      const bool was_running = process.running();
      process.Reap();
      if (was_running && !process.running()) NoteEnd(process);
    }
  }

  void Listen(RankProcess& process) {
    const std::string text = process.ReadStderr();
    if (process.rank() == 0 && !text.empty()) options_.write_stderr(text);
  }

  void NoteEnd(const RankProcess& process) {
    const int status = *process.wait_status();
    if (status == 0) return;
    if (WIFSIGNALED(status) && WTERMSIG(status) == policy_.first()) {  // it was for all of us
      agreed_end_ = base::kExitSignalBase + policy_.first();
      return;
    }
    if (const std::optional<int> code = AgreedEnd(status)) {
      agreed_end_ = *code;
      return;
    }
    if (!failed_) failed_at_ = absl::Now();
    failed_ = true;
    if (!stopping_) ended_badly_.push_back(&process);
  }

  void ReadSignals() {
    signalfd_siginfo info = {};
    while (read(signal_fd_, &info, sizeof(info)) == sizeof(info)) {
      const auto signal = static_cast<int>(info.ssi_signo);
      if (policy_.OnSignal(signal, absl::Now()) != StopAction::kEndAtOnce || at_once_) continue;
      at_once_ = true;
      options_.write_stderr(
          absl::StrCat(kProgramName, ": ended at once by a second ", SignalName(signal), "\n"));
    }
  }

  void Stop() {
    stopping_ = true;
    if (!at_once_) {
      for (const RankProcess& process : processes_) process.Signal(SIGTERM);
      PollUntil([&] { return Over() || at_once_; }, absl::Now() + options_.grace_time);
    }
    for (const RankProcess& process : processes_) process.Signal(SIGKILL);
    PollUntil([&] { return Over(); }, absl::InfiniteFuture());
  }

  const LaunchOptions& options_;
  const int signal_fd_;
  const Restarts restarts_;
  absl::Time failed_at_;
  std::vector<RankProcess> processes_;
  std::vector<const RankProcess*> ended_badly_;  // before they were told to stop, in order
  bool failed_ = false;
  bool stopping_ = false;
  StopPolicy policy_;     // its first signal was passed on
  bool at_once_ = false;  // a second one came
  int agreed_end_ = base::kExitOk;
};

}  // namespace

absl::StatusOr<int> Launch(const LaunchOptions& options) {
  sigset_t forwarded, before;
  sigemptyset(&forwarded);
  for (const int signal : kStopSignals) sigaddset(&forwarded, signal);
  sigprocmask(SIG_BLOCK, &forwarded, &before);
  const absl::Cleanup restore = [&] { sigprocmask(SIG_SETMASK, &before, nullptr); };
  const int signal_fd = signalfd(-1, &forwarded, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signal_fd < 0) return absl::ErrnoToStatus(errno, "cannot watch signals");
  const absl::Cleanup close_fd = [&] { close(signal_fd); };
  const std::string job_id = RandomJobId();
  Restarts restarts = {.count = 0, .most = options.restarts};
  for (;;) {
    Launcher launcher(options, signal_fd, restarts);
    GEMINID_RETURN_IF_ERROR(launcher.Start(job_id, before));
    launcher.Run();
    const std::optional<Restarts> again = launcher.Again();
    if (!again.has_value()) return launcher.Judge();
    launcher.SayAgain();
    restarts = *again;
  }
}

bool IsLaunched() {
  const char* const launcher = std::getenv(kLauncherVariable);
  return launcher != nullptr && absl::StrCat(getppid()) == launcher;
}

std::string RankName(int rank) { return absl::StrCat(kProgramName, ": rank ", rank); }

std::string ShortRankName(int rank) {
  std::string name = absl::StrCat("geminid-rank ", rank);
  return name.size() <= kProcessNameMax ? name : absl::StrCat("geminid-rk ", rank);
}

std::vector<std::string> WithoutOptions(const std::vector<std::string>& arguments,
                                        const std::vector<std::string>& names) {
  std::vector<std::string> kept;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string name = arguments[i].substr(0, arguments[i].find('='));
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      kept.push_back(arguments[i]);
    } else if (name == arguments[i]) {
      ++i;  // its value is the next argument
    }
  }
  return kept;
}

}  // namespace geminid::trainer
