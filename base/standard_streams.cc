#include "base/standard_streams.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "base/system_error.h"

namespace geminid::base {
namespace {

constexpr int kPatienceMilliseconds = 1000;

// The reader has not read for so long. Only a hint, so threads need not agree on it.
std::atomic<bool> reader_sleeps = false;

void OpenWhereClosed(int fd, int flags) {
  if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) return;
  // Gets the lowest free number: lower ones are open by now. Not close-on-exec, as is usual here.
  const int opened = open("/dev/null", flags);
  if (opened > fd) close(opened);
}

// A terminal or pipe that has room accepts PIPE_BUF bytes without waiting.
bool HasRoom() {
  pollfd room = {STDERR_FILENO, POLLOUT, 0};
  const int patience = reader_sleeps.load(std::memory_order_relaxed) ? 0 : kPatienceMilliseconds;
  const bool ready = RetryOnEintr([&] { return poll(&room, 1, patience); }) > 0;
  reader_sleeps.store(!ready, std::memory_order_relaxed);
  return ready;
}

}  // namespace

void PrepareStandardStreams() {
  OpenWhereClosed(STDIN_FILENO, O_RDONLY);
  OpenWhereClosed(STDOUT_FILENO, O_RDONLY);
  OpenWhereClosed(STDERR_FILENO, O_RDWR);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
}

void RestoreStreamSignals() {
  signal(SIGPIPE, SIG_DFL);
  signal(SIGXFSZ, SIG_DFL);
}

void WriteStandardError(std::string_view text) {
  while (!text.empty()) {
    if (!HasRoom()) return;
    const size_t most = std::min<size_t>(text.size(), PIPE_BUF);
    const ssize_t written = RetryOnEintr([&] { return write(STDERR_FILENO, text.data(), most); });
    if (written < 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace geminid::base
