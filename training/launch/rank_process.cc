#include "training/launch/rank_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/standard_streams.h"

namespace geminid::trainer {
namespace {

constexpr int kExecFailed = 127;  // the code that shells use

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Runs in the child between fork and exec, so it makes only system calls.
[[noreturn]] void BecomeRank(const char* program, char* const* argv, char* const* envp,
                             const sigset_t& signal_mask, pid_t parent, int stderr_fd,
                             const std::vector<int>& inherited) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kExecFailed);  // the parent died before prctl
  dup2(stderr_fd, STDERR_FILENO);
  for (const int fd : inherited) fcntl(fd, F_SETFD, 0);
  base::RestoreStreamSignals();
  sigprocmask(SIG_SETMASK, &signal_mask, nullptr);
  execve(program, argv, envp);
  constexpr char kMessage[] = "cannot execute the trainer's program\n";
  (void)!write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
  _exit(kExecFailed);
}

}  // namespace

absl::StatusOr<RankProcess> RankProcess::Start(int rank, const std::string& program,
                                               const std::vector<std::string>& arguments,
                                               const std::vector<std::string>& environment,
                                               const sigset_t& signal_mask,
                                               std::vector<int> inherited) {
  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "cannot make a pipe");
  fcntl(pipe_fds[0], F_SETFL, O_NONBLOCK);
  int done_fds[2];
  if (pipe2(done_fds, O_CLOEXEC | O_NONBLOCK) != 0) {
    const int error = errno;
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    return absl::ErrnoToStatus(error, "cannot make a pipe");
  }
  base::UniqueFd done(done_fds[0]);
  const base::UniqueFd rank_says_done(done_fds[1]);
  const std::string done_is = absl::StrCat(kDoneVariable, "=");
  std::vector<std::string> whole_environment = environment;
  std::erase_if(whole_environment,  // if this process is a rank itself
                [&](const std::string& entry) { return absl::StartsWith(entry, done_is); });
  whole_environment.push_back(absl::StrCat(done_is, rank_says_done.get()));
  inherited.push_back(rank_says_done.get());
  const std::vector<char*> argv = Pointers(arguments);
  const std::vector<char*> envp = Pointers(whole_environment);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    BecomeRank(program.c_str(), argv.data(), envp.data(), signal_mask, parent, pipe_fds[1],
               inherited);
  }
  const int fork_errno = errno;
  close(pipe_fds[1]);
  if (pid < 0) {
    close(pipe_fds[0]);
    return absl::ErrnoToStatus(fork_errno, absl::StrCat("cannot start rank ", rank));
  }
  // The child has not been reaped, so no other process can have its pid.
  const auto process_fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  RankProcess process(rank, pid, process_fd, pipe_fds[0], std::move(done));
  if (process_fd < 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot watch rank ", rank));
  }
  return process;
}

RankProcess::RankProcess(RankProcess&& other) noexcept
    : state_(std::move(other.state_)),
      pid_(std::exchange(other.pid_, -1)),
      process_fd_(std::exchange(other.process_fd_, -1)),
      stderr_fd_(std::exchange(other.stderr_fd_, -1)),
      done_fd_(std::move(other.done_fd_)) {}

RankProcess::~RankProcess() {
  if (running()) {
    kill(pid_, SIGKILL);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  if (process_fd_ >= 0) close(process_fd_);
  if (stderr_fd_ >= 0) close(stderr_fd_);
}

void RankProcess::ReadStderr() {
  char buffer[4096];
  while (stderr_fd_ >= 0) {
    const ssize_t count = read(stderr_fd_, buffer, sizeof(buffer));
    if (count > 0) {
      state_.AddWords(std::string(buffer, static_cast<size_t>(count)));
    } else if (count == 0) {
      close(std::exchange(stderr_fd_, -1));
    } else if (errno != EINTR) {
      break;
    }
  }
}

void RankProcess::Look() {
  ReadStderr();
  int status = 0;
  if (!running() || waitpid(pid_, &status, WNOHANG) != pid_) return;
  char byte = 0;
  state_.Ended(status, read(done_fd_.get(), &byte, 1) == 1);
  ReadStderr();  // the output since the read above
}

void RankProcess::Signal(int signal) const {
  if (running()) kill(pid_, signal);
}

}  // namespace geminid::trainer
