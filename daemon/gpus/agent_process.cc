#include "daemon/gpus/agent_process.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/child_process.h"
#include "base/system_error.h"
#include "daemon/os/event.h"
#include "daemon/os/unix_socket.h"

namespace geminid::gpus {
namespace {

constexpr char kProgram[] = "geminid-agent";
constexpr char kVisibleDevices[] = "CUDA_VISIBLE_DEVICES=";
// What an agent may take to end when its socket has closed, before it is killed.
constexpr int kLastWordsMilliseconds = 200;
constexpr int kKilledMilliseconds = 2000;

// This process's variables, with the one that makes the GPU the driver's only device.
std::vector<std::string> EnvironmentFor(const std::string& uuid) {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (uuid.empty() || !absl::StartsWith(*variable, kVisibleDevices)) {
      variables.emplace_back(*variable);
    }
  }
  if (!uuid.empty()) variables.push_back(absl::StrCat(kVisibleDevices, uuid));
  return variables;
}

bool WaitReadable(const base::UniqueFd& fd, int milliseconds) {
  pollfd entry = {.fd = fd.get(), .events = POLLIN, .revents = 0};
  return base::RetryOnEintr([&] { return ::poll(&entry, 1, milliseconds); }) > 0;
}

}  // namespace

std::string AgentBesideThisProgram() {
  std::error_code error;
  const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe", error);
  return (here.parent_path() / kProgram).string();
}

absl::StatusOr<AgentProcess> AgentProcess::Start(const std::string& program,
                                                 const std::string& uuid) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return base::SystemError(errno, "socketpair", "for geminid-agent");
  }
  base::UniqueFd ours(ends[0]);
  const base::UniqueFd theirs(ends[1]);
  base::ChildProgram child = {.arguments = {program},
                              .environment = EnvironmentFor(uuid),
                              .descriptors = {{theirs.get(), agent::kAgentSocket}}};
  if (uuid.empty()) {
    child.arguments.emplace_back("--probe");
  } else {
    child.arguments.insert(child.arguments.end(), {"--gpu", uuid});
  }
  const absl::StatusOr<pid_t> started = base::StartChild(child);
  if (!started.ok()) {
    return absl::Status(started.status().code(),
                        absl::StrCat("cannot start ", program,
                                     "; install it beside geminid: ", started.status().message()));
  }
  const pid_t pid = *started;
  // The child is not reaped yet, so the number is still its own.
  base::UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd.valid()) {
    absl::Status status = base::SystemError(errno, "pidfd_open", "of geminid-agent");
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    return status;
  }
  return AgentProcess(pid, std::move(pidfd), std::move(ours));
}

AgentProcess::~AgentProcess() {
  socket_.Reset();
  if (!pidfd_.valid() || HowItEnded().has_value()) return;
  if (!WaitReadable(pidfd_, kLastWordsMilliseconds)) {
    Kill();
    // A process that hangs in the kernel is left to the process that inherits it.
    (void)WaitReadable(pidfd_, kKilledMilliseconds);
  }
  (void)HowItEnded();
}

absl::Status AgentProcess::Send(const agent::Request& request) const {
  absl::Status sent = os::SendMessage(socket_, std::as_bytes(std::span(&request, 1)), {});
  if (absl::IsUnavailable(sent)) return absl::UnavailableError("it does not read its socket");
  if (absl::IsFailedPrecondition(sent)) {
    return absl::FailedPreconditionError("it has closed its socket");
  }
  return sent;
}

absl::StatusOr<std::optional<AgentProcess::ReceivedReply>> AgentProcess::Receive() const {
  std::array<std::byte, sizeof(agent::Reply)> buffer;
  std::vector<base::UniqueFd> fds;
  const os::Received received = os::ReceiveMessage(socket_, buffer, &fds);
  if (received.result == os::Received::Result::kNothing) return std::nullopt;
  if (received.result == os::Received::Result::kEnd) {
    return absl::UnavailableError("it closed its socket");
  }
  if (received.truncated) {
    return absl::InvalidArgumentError(
        absl::StrCat("a message of ", received.bytes, " bytes; expected ", buffer.size(),
                     ", or its descriptors did not fit below the limit of open files"));
  }
  absl::StatusOr<agent::Reply> reply =
      agent::ReadReply(std::span(buffer).first(received.bytes), fds.size());
  if (!reply.ok()) return reply.status();
  ReceivedReply heard = {.reply = *reply, .fd = {}};
  if (!fds.empty()) heard.fd = std::move(fds.front());
  return std::optional<ReceivedReply>(std::move(heard));
}

void AgentProcess::Kill() const {
  if (!end_.has_value()) ::kill(pid_, SIGKILL);
}

std::optional<std::string> AgentProcess::HowItEnded() {
  if (end_.has_value()) return end_;
  siginfo_t info = {};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG) != 0) {
    end_ = "it was taken over by another process";
  } else if (info.si_pid == 0) {
    return std::nullopt;
  } else if (info.si_code == CLD_EXITED) {
    end_ = absl::StrCat("exit code ", info.si_status);
  } else {
    end_ = absl::StrCat("signal ", info.si_status, " (", ::strsignal(info.si_status), ")");
  }
  return end_;
}

}  // namespace geminid::gpus
