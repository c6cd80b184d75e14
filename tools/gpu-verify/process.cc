#include "tools/gpu-verify/process.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

namespace geminid::gpu_verify {
namespace {

constexpr size_t kMessageBytes = 4096;
constexpr char kErrorMark = '\x15';  // ASCII "negative acknowledge"; begins no other message

std::string Words(const char* what) { return std::string(what) + ": " + std::strerror(errno); }

[[noreturn]] void RunBody(const std::string& name, const std::function<void(Channel&)>& body,
                          Channel channel) {
  try {
    body(channel);
  } catch (const std::exception& error) {
    try {
      channel.Send(kErrorMark + name + ": " + error.what());
    } catch (const std::exception&) {  // the peer is gone
    }
    _exit(1);
  }
  _exit(0);  // no destructors or atexit handlers of the parent's objects
}

// Invalid where there are no pidfds: in kernels before 5.3 and some sandboxes.
base::UniqueFd OpenPidfd(pid_t pid) {
  return base::UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

}  // namespace

bool KillOrphan(pid_t pid, double timeout_seconds) {
  const base::UniqueFd pidfd = OpenPidfd(pid);
  kill(pid, SIGKILL);
  if (!pidfd.valid()) {
    constexpr double kBlindSeconds = 0.2;
    Pause(kBlindSeconds);
    return true;
  }
  pollfd entry{pidfd.get(), POLLIN, 0};
  return poll(&entry, 1, static_cast<int>(timeout_seconds * 1e3)) == 1;
}

double Now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

void Pause(double seconds) {
  timespec rest{};
  rest.tv_sec = static_cast<time_t>(seconds);
  rest.tv_nsec = static_cast<long>((seconds - static_cast<double>(rest.tv_sec)) * 1e9);
  while (nanosleep(&rest, &rest) != 0 && errno == EINTR) {
  }
}

uint64_t AvailableHostBytes() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  uint64_t kib = 0;
  while (file >> key >> kib) {
    if (key == "MemAvailable:") return kib * 1024;
    std::getline(file, key);
  }
  throw ProbeError("/proc/meminfo has no MemAvailable");
}

void Channel::Send(const std::string& text, int fd) const {
  iovec part{const_cast<char*>(text.data()), std::min(text.size(), kMessageBytes)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof(int));
  }
  ssize_t sent;
  do {
    sent = sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0) throw ProbeError(Words("sendmsg"));
}

Channel::Message Channel::Receive() const {
  std::string text(kMessageBytes, '\0');
  iovec part{text.data(), text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t received;
  do {
    received = recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  if (received < 0) throw ProbeError(Words("recvmsg"));
  if (received == 0) throw ProbeError("a process of the probe ended without an answer");
  text.resize(static_cast<size_t>(received));
  Message result{std::move(text), base::UniqueFd()};
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof(int));
    result.fd = base::UniqueFd(fd);
  }
  if (result.text[0] == kErrorMark) throw ProbeError(result.text.substr(1));
  return result;
}

Role Role::Start(const std::string& name, const std::function<void(Channel&)>& body) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    throw ProbeError(Words("socketpair"));
  }
  base::UniqueFd ours(ends[0]);
  base::UniqueFd theirs(ends[1]);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) throw ProbeError(Words("fork"));
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);  // the parent ended before the line above
    ours.Reset();
    RunBody(name, body, Channel(std::move(theirs)));
  }
  return Role(pid, OpenPidfd(pid), Channel(std::move(ours)));
}

Role::Role(Role&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      pidfd_(std::move(other.pidfd_)),
      channel_(std::move(other.channel_)) {}

Role& Role::operator=(Role&& other) noexcept {
  if (this != &other) {
    End();
    pid_ = std::exchange(other.pid_, -1);
    pidfd_ = std::move(other.pidfd_);
    channel_ = std::move(other.channel_);
  }
  return *this;
}

void Role::Kill() const {
  if (pid_ > 0) kill(pid_, SIGKILL);
}

bool Role::WaitForEnd(double timeout_seconds) const {
  const double deadline = Now() + timeout_seconds;
  while (true) {
    if (pidfd_.valid()) {
      pollfd entry{pidfd_.get(), POLLIN, 0};
      const double left = std::max(0.0, deadline - Now());
      if (poll(&entry, 1, static_cast<int>(left * 1e3) + 1) == 1) return true;
    } else {
      siginfo_t info{};
      if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
          info.si_pid == pid_) {
        return true;
      }
      Pause(0.0002);
    }
    if (Now() >= deadline) return false;
  }
}

void Role::End() {
  if (pid_ <= 0) return;
  Kill();
  // If the driver does not let the process end, this does not block for ever: the program that runs
  // the probe has a time limit.
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

}  // namespace geminid::gpu_verify
