#include "daemon/os/event.h"

#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>

#include "absl/strings/str_cat.h"
#include "base/system_error.h"

namespace geminid::os {
namespace {

constexpr int64_t kNanosecondsPerSecond = 1000000000;

int64_t Read(clockid_t clock) {
  timespec now;
  ::clock_gettime(clock, &now);
  return static_cast<int64_t>(now.tv_sec) * kNanosecondsPerSecond + now.tv_nsec;
}

}  // namespace

absl::StatusOr<base::UniqueFd> CreateEvent() {
  base::UniqueFd fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!fd.valid()) return base::SystemError(errno, "eventfd", "an event");
  return fd;
}

void Signal(const base::UniqueFd& event) {
  const uint64_t one = 1;
  // The only failure that can happen, a counter at its limit, leaves the event readable.
  (void)!base::RetryOnEintr([&] { return ::write(event.get(), &one, sizeof(one)); });
}

void Clear(const base::UniqueFd& event) {
  uint64_t count;
  (void)!base::RetryOnEintr([&] { return ::read(event.get(), &count, sizeof(count)); });
}

absl::StatusOr<WakeUp> CreateWakeUp() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    return base::SystemError(errno, "socketpair", "a wake-up");
  }
  WakeUp wake_up = {base::UniqueFd(ends[0]), base::UniqueFd(ends[1])};
  // The kernel rounds this up to its least: a few unread wake-ups are as good as one.
  const int least = 1;
  if (::setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &least, sizeof(least)) != 0 ||
      ::shutdown(ends[0], SHUT_RD) != 0) {
    return base::SystemError(errno, "setsockopt", "a wake-up");
  }
  return wake_up;
}

void Wake(const base::UniqueFd& ours) {
  const char byte = 1;
  // EAGAIN leaves the other end readable; without another end there is nobody to wake.
  (void)!base::RetryOnEintr(
      [&] { return ::send(ours.get(), &byte, sizeof(byte), MSG_DONTWAIT | MSG_NOSIGNAL); });
}

absl::StatusOr<base::UniqueFd> CreateSignalFd(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  if (const int error = ::pthread_sigmask(SIG_BLOCK, &set, nullptr); error != 0) {
    return base::SystemError(error, "pthread_sigmask", "signals");
  }
  base::UniqueFd fd(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!fd.valid()) return base::SystemError(errno, "signalfd", "signals");
  return fd;
}

ReceivedSignal NextSignal(const base::UniqueFd& signal_fd) {
  signalfd_siginfo info;
  const ssize_t got =
      base::RetryOnEintr([&] { return ::read(signal_fd.get(), &info, sizeof(info)); });
  if (got != static_cast<ssize_t>(sizeof(info))) return {};
  return {static_cast<int>(info.ssi_signo), static_cast<pid_t>(info.ssi_pid)};
}

absl::StatusOr<base::UniqueFd> OpenPidfd(pid_t pid) {
  base::UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (fd.valid()) return fd;
  if (errno == ESRCH) return absl::NotFoundError(absl::StrCat("there is no process ", pid));
  return base::SystemError(errno, "pidfd_open", absl::StrCat("process ", pid));
}

int64_t MonotonicNanoseconds() { return Read(CLOCK_MONOTONIC); }

int64_t ThreadNanoseconds() { return Read(CLOCK_THREAD_CPUTIME_ID); }

}  // namespace geminid::os
