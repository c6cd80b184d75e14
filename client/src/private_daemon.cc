#include "geminid/private_daemon.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/child_process.h"
#include "base/deadline.h"
#include "base/exit_code.h"
#include "base/memory_limits.h"
#include "base/start_thread.h"
#include "base/status_macros.h"
#include "base/system_error.h"
#include "base/unique_fd.h"
#include "client/os/thread.h"
#include "proto/shm/attach_messages.h"

extern char** environ;

namespace geminid {
namespace {

constexpr char kBinaryVariable[] = "GEMINID_DAEMON";
constexpr char kBinaryName[] = "geminid";
constexpr int kReadyFd = 3;  // the descriptor's number in the daemon
// A draining daemon ends in well under a second.
constexpr absl::Duration kEndTimeout = absl::Seconds(5);
// Limits for restarts of a daemon that died without ever serving, and the pause between them. A
// daemon that was killed meanwhile does not count as failed.
constexpr int kMostFailures = 5;
constexpr int kMostKills = 50;
constexpr int kPauseMilliseconds = 50;
constexpr std::streamoff kLogTailBytes = 2000;
// ".attach" is the longest suffix that the daemon appends to the socket's path.
constexpr size_t kMaxSocketPath = 107 - 7;

bool IsProgram(const std::string& path) {
  struct stat file = {};
  return stat(path.c_str(), &file) == 0 && S_ISREG(file.st_mode) && access(path.c_str(), X_OK) == 0;
}

absl::StatusOr<std::string> FindBinary(const std::string& chosen) {
  const char* const from_environment = std::getenv(kBinaryVariable);
  std::string named = !chosen.empty()               ? chosen
                      : from_environment != nullptr ? from_environment
                                                    : "";
  if (!named.empty()) {
    if (IsProgram(named)) return named;
    return absl::NotFoundError(absl::StrCat("no program at ", named, "; set ", kBinaryVariable,
                                            " to the path of the geminid daemon"));
  }
  std::vector<std::string> candidates;
  std::error_code ignored;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", ignored);
  Dl_info library = {};
  const bool known = dladdr(&kBinaryVariable, &library) != 0 && library.dli_fname != nullptr;
  // Prefers the daemon of this library's release: the interpreter that loaded the library may have
  // another one beside it.
  if (known && !std::filesystem::equivalent(library.dli_fname, self, ignored)) {
    const std::filesystem::path folder = std::filesystem::path(library.dli_fname).parent_path();
    candidates.push_back((folder / kBinaryName).string());
    candidates.push_back((folder / GEMINID_DAEMON_FROM_LIBRARY).lexically_normal().string());
  }
  if (!self.empty()) candidates.push_back((self.parent_path() / kBinaryName).string());
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (!folder.empty()) candidates.push_back(absl::StrCat(folder, "/", kBinaryName));
  }
  for (const std::string& candidate : candidates) {
    if (IsProgram(candidate)) return candidate;
  }
  return absl::NotFoundError(absl::StrCat(
      "the geminid daemon is neither beside this library or program nor on $PATH; install it, set ",
      kBinaryVariable, " to its path, or set GEMINID_SOCKET to a running daemon"));
}

// mkdtemp's mode makes it private to the user.
absl::StatusOr<std::string> MakeFolder() {
  std::vector<std::string> parents;
  for (const char* const variable : {"XDG_RUNTIME_DIR", "TMPDIR"}) {
    const char* const parent = std::getenv(variable);
    if (parent != nullptr && *parent != '\0') parents.push_back(parent);
  }
  parents.push_back("/tmp");
  const std::string own_name = "/geminid-XXXXXX";
  const size_t max_parent = kMaxSocketPath - own_name.size() - sizeof "/geminid.sock" + 1;
  std::string tried;
  int error = 0;
  for (const std::string& given : parents) {
    // This process may change its folder while the daemon lives.
    std::error_code ignored;
    const std::string parent = std::filesystem::absolute(given, ignored).string();
    absl::StrAppend(&tried, tried.empty() ? "" : ", ", parent);
    if (parent.size() > max_parent) {
      absl::StrAppend(&tried, " (longer than the ", max_parent, " characters a socket leaves)");
      continue;
    }
    std::string name = absl::StrCat(parent, own_name);
    if (mkdtemp(name.data()) != nullptr) return name;
    error = errno;
    absl::StrAppend(&tried, " (", std::generic_category().message(error), ")");
  }
  return absl::Status(
      base::SystemError(error, "mkdtemp", "").code(),
      absl::StrCat("no folder for the socket of a private daemon: tried ", tried,
                   "; set TMPDIR to a folder that you can write to, or GEMINID_SOCKET to a running "
                   "daemon"));
}

// This process's environment without variables that name a place only one daemon can have.
std::vector<std::string> EnvironmentForDaemon() {
  constexpr std::string_view kOnlyForOne[] = {"GEMINID_METRICS_LISTEN=", "GEMINID_SOCKET="};
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    bool keep = true;
    for (std::string_view name : kOnlyForOne) {
      keep = keep && std::strncmp(*variable, name.data(), name.size()) != 0;
    }
    if (keep) variables.emplace_back(*variable);
  }
  return variables;
}

// For a daemon with an empty log.
std::string WhyNothing(const std::string& folder) {
  std::error_code error;
  constexpr uintmax_t kLittleBytes = 4096;
  if (std::filesystem::space(folder, error).available >= kLittleBytes || error) {
    return "(it wrote nothing)";
  }
  return absl::StrCat("(nothing, for there is no space left in ", folder,
                      ": remove files there, or set TMPDIR to another folder)");
}

// The daemon writes "ready" and a newline, then closes. If it only closes, it has failed.
absl::Status WaitReady(const base::UniqueFd& pipe, const base::Deadline& deadline) {
  std::string said;
  for (;;) {
    pollfd waiting = {pipe.get(), POLLIN, 0};
    constexpr int kAtMostMilliseconds = 1 << 30;
    const int ready = poll(&waiting, 1, deadline.LeftMilliseconds(kAtMostMilliseconds));
    if (ready < 0 && errno != EINTR)
      return base::SystemError(errno, "poll", "the daemon's ready pipe");
    if (ready == 0 && deadline.Passed()) {
      return absl::DeadlineExceededError("the private daemon did not become ready in time");
    }
    if (ready <= 0) continue;
    char text[16];
    const ssize_t count = read(pipe.get(), text, sizeof text);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return absl::UnavailableError("the private daemon ended while starting");
    said.append(text, static_cast<size_t>(count));
    if (said == "ready\n") return absl::OkStatus();
  }
}

// True if the process ended in time. `pid` is a child that nothing else waits for.
bool WaitEnd(pid_t pid, absl::Duration timeout) {
  base::UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  const base::Deadline deadline = base::Deadline::In(timeout);
  pollfd waiting = {process.get(), POLLIN, 0};
  constexpr int kAtMostMilliseconds = 1 << 30;
  while (poll(&waiting, 1, deadline.LeftMilliseconds(kAtMostMilliseconds)) <= 0) {
    if (deadline.Passed()) return false;
  }
  return true;
}

// Waits for the process to end, and kills it after `timeout`. Returns waitpid's status.
int AwaitEnd(pid_t pid, absl::Duration timeout) {
  if (!WaitEnd(pid, timeout)) kill(pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

int EndProcess(pid_t pid) {
  kill(pid, SIGTERM);
  return AwaitEnd(pid, kEndTimeout);
}

// A daemon that a signal ended could not say why. If the reason is known, messages of libraries in
// the log do not help.
absl::Status StartError(const absl::Status& error, int wait_status, const std::string& binary,
                        const std::string& log_tail) {
  const std::string limit = base::DescribeMemoryLimits();
  if (!WIFSIGNALED(wait_status) || !absl::IsUnavailable(error)) {
    const bool refused =
        WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == base::kDaemonExitResources;
    return absl::Status(
        refused ? absl::StatusCode::kResourceExhausted : error.code(),
        absl::StrCat(error.message(), " (", binary, "); its last output:\n", log_tail));
  }
  const int signal = WTERMSIG(wait_status);
  const std::string ended = absl::StrCat("the private daemon (", binary, ") was ended by signal ",
                                         signal, " (", strsignal(signal), ") while starting");
  if (limit.empty()) {
    return absl::UnavailableError(absl::StrCat(ended, "; its last output:\n", log_tail));
  }
  return absl::ResourceExhaustedError(absl::StrCat(ended, "; ", limit));
}

}  // namespace

// The process, and a thread that restarts it.
class PrivateDaemon::Keeper {
 public:
  Keeper(std::vector<std::string> arguments, std::string log_path, std::string holder_socket,
         absl::Duration timeout)
      : arguments_(std::move(arguments)),
        log_path_(std::move(log_path)),
        holder_socket_(std::move(holder_socket)),
        timeout_(timeout) {}
  ~Keeper() {
    if (thread_.joinable()) {
      (void)eventfd_write(stop_.get(), 1);
      thread_.join();
    }
    if (pid() > 0) EndProcess(pid());
  }

  pid_t pid() const { return pid_.load(); }
  // The log, also once a daemon that could not start has removed it with its folder.
  std::string log() const {
    return access(log_path_.c_str(), R_OK) == 0 ? log_path_
                                                : absl::StrCat("/proc/self/fd/", log_.get());
  }

  // Starts the daemon and waits until it serves. On failure *wait_status says how it ended.
  absl::Status Launch(int* wait_status);
  absl::Status Watch();

 private:
  void Loop();
  bool StartAgain();

  const std::vector<std::string> arguments_;
  // The folder of this process when it started the daemon. Each daemon starts there, because paths
  // in its arguments and environment may be relative.
  const base::UniqueFd folder_{open(".", O_PATH | O_DIRECTORY | O_CLOEXEC)};
  const std::string log_path_;
  const base::UniqueFd log_{open(log_path_.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC, 0600)};
  const std::string holder_socket_;
  const absl::Duration timeout_;
  std::atomic<pid_t> pid_ = -1;
  base::UniqueFd stop_;
  std::thread thread_;
};

absl::Status PrivateDaemon::Keeper::Launch(int* wait_status) {
  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC) != 0)
    return base::SystemError(errno, "pipe2", "the daemon's ready pipe");
  base::UniqueFd read_end(pipe_ends[0]);
  base::UniqueFd write_end(pipe_ends[1]);
  GEMINID_ASSIGN_OR_RETURN(const pid_t pid,
                           base::StartChild({.arguments = arguments_,
                                             .environment = EnvironmentForDaemon(),
                                             .descriptors = {{write_end.get(), kReadyFd}},
                                             .folder = folder_.get(),
                                             .reads_input = false,
                                             .output = log_path_,
                                             .errors_to_output = true}));
  write_end.Reset();
  absl::Status ready = WaitReady(read_end, base::Deadline::In(timeout_));
  if (ready.ok()) {
    pid_.store(pid);
  } else {
    // Not asked to end, because then it would end the sessions that it may have taken over.
    const bool ended = absl::IsUnavailable(ready);
    *wait_status = AwaitEnd(pid, ended ? kEndTimeout : absl::ZeroDuration());
  }
  return ready;
}

absl::Status PrivateDaemon::Keeper::Watch() {
  stop_ = base::UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop_.valid()) return base::SystemError(errno, "eventfd", "the private daemon's keeper");
  GEMINID_ASSIGN_OR_RETURN(thread_, base::StartThread([this] { Loop(); }));
  return absl::OkStatus();
}

void PrivateDaemon::Keeper::Loop() {
  PrepareThread("geminid-keeper");
  while (pid() > 0) {
    const base::UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, pid(), 0)));
    pollfd waiting[] = {{process.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    (void)poll(waiting, 2, -1);
    if (waiting[1].revents != 0) return;
    int wait_status = 0;
    const pid_t ended = waitpid(pid(), &wait_status, WNOHANG);
    if (ended == 0) continue;
    pid_.store(-1);
    // A daemon that was asked to end has ended its sessions too.
    const bool asked = ended > 0 && WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0;
    if (asked || !StartAgain()) return;
  }
}

bool PrivateDaemon::Keeper::StartAgain() {
  int failures = 0;
  int kills = 0;
  while (failures < kMostFailures && kills < kMostKills) {
    int wait_status = 0;
    const absl::Status ready = Launch(&wait_status);
    if (ready.ok()) return true;
    const bool killed =
        absl::IsUnavailable(ready) && WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL;
    ++(killed ? kills : failures);
    pollfd stop = {stop_.get(), POLLIN, 0};
    if (poll(&stop, 1, kPauseMilliseconds << failures) != 0) return false;
  }
  // No daemon will come: without its socket the holder ends, and the stored sessions with it.
  std::error_code ignored;
  std::filesystem::remove(holder_socket_, ignored);
  return false;
}

absl::StatusOr<std::unique_ptr<PrivateDaemon>> PrivateDaemon::Start(
    const PrivateDaemonOptions& options) {
  GEMINID_ASSIGN_OR_RETURN(const std::string binary, FindBinary(options.binary));
  GEMINID_ASSIGN_OR_RETURN(std::string folder, MakeFolder());
  std::unique_ptr<PrivateDaemon> daemon(new PrivateDaemon);
  daemon->owner_ = getpid();
  daemon->folder_ = folder;
  daemon->socket_ = folder + "/geminid.sock";
  daemon->log_path_ = folder + "/geminid.log";

  std::vector<std::string> arguments = {
      binary,     "--private",     "--parent-pid", absl::StrCat(daemon->owner_),
      "--socket", daemon->socket_, "--ready-fd",   absl::StrCat(kReadyFd)};
  arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
  daemon->keeper_ = std::make_unique<Keeper>(std::move(arguments), daemon->log_path_,
                                             daemon->socket_ + shm::kHolderSuffix, options.timeout);
  int wait_status = 0;
  const absl::Status ready = daemon->keeper_->Launch(&wait_status);
  if (!ready.ok()) return StartError(ready, wait_status, binary, daemon->LogTail());
  GEMINID_RETURN_IF_ERROR(daemon->keeper_->Watch());
  return daemon;
}

PrivateDaemon::PrivateDaemon() = default;

PrivateDaemon::~PrivateDaemon() {
  if (getpid() != owner_) {
    // Neither the process nor the thread belongs to this process.
    [[maybe_unused]] Keeper* const left_alone = keeper_.release();
    return;
  }
  keeper_.reset();
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

pid_t PrivateDaemon::pid() const { return keeper_->pid(); }

std::string PrivateDaemon::LogTail() const {
  std::ifstream log(keeper_->log(), std::ios::binary | std::ios::ate);
  if (!log) return WhyNothing(folder_);
  const std::streamoff bytes = log.tellg();
  log.seekg(std::max<std::streamoff>(0, bytes - kLogTailBytes));
  std::ostringstream text;
  text << log.rdbuf();
  return text.str().empty() ? WhyNothing(folder_) : text.str();
}

}  // namespace geminid
