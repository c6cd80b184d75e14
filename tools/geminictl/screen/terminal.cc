#include "tools/geminictl/screen/terminal.h"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/system_error.h"
#include "daemon/os/event.h"

namespace geminid::ctl {
namespace {

// xterm's private modes: another screen, so that the scroll-back is not written over; the cursor.
constexpr char kEnter[] = "\x1b[?1049h\x1b[?25l";
constexpr char kLeave[] = "\x1b[?25h\x1b[?1049l";
constexpr char kHome[] = "\x1b[H";
constexpr char kClearToEndOfLine[] = "\x1b[K\r\n";
constexpr char kClearToEndOfScreen[] = "\x1b[J";

void WriteAll(const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t wrote = base::RetryOnEintr(
        [&] { return ::write(STDOUT_FILENO, text.data() + done, text.size() - done); });
    if (wrote <= 0) return;  // the terminal is closed; SIGHUP reports it too
    done += static_cast<size_t>(wrote);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Terminal>> Terminal::Open() {
  termios before = {};
  if (::tcgetattr(STDIN_FILENO, &before) != 0) {
    return base::SystemError(errno, "tcgetattr", "standard input; try --once");
  }
  absl::StatusOr<base::UniqueFd> signals = os::CreateSignalFd({SIGINT, SIGTERM, SIGHUP, SIGWINCH});
  if (!signals.ok()) return signals.status();
  // If the person puts this job into the background, these signals would stop it for ever, because
  // SIGTERM only arrives as a key. If they are ignored, a read in the background fails and ends the
  // program.
  ::signal(SIGTTOU, SIG_IGN);
  ::signal(SIGTTIN, SIG_IGN);
  termios raw = before;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  if (::tcsetattr(STDIN_FILENO, TCSANOW, &raw) != 0) {
    return base::SystemError(errno, "tcsetattr", "standard input; try --once");
  }
  return std::unique_ptr<Terminal>(new Terminal(*std::move(signals), before));
}

Terminal::Terminal(base::UniqueFd signals, const termios& before)
    : signals_(std::move(signals)), before_(before) {
  WriteAll(kEnter);
}

Terminal::~Terminal() {
  WriteAll(kLeave);
  ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
}

Screen Terminal::Size() const {
  winsize size = {};
  Screen screen;
  screen.height = 24;  // for a terminal that does not know its size
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
    screen.width = size.ws_col;
    screen.height = size.ws_row;
  }
  screen.height -= screen.height > 1 ? 1 : 0;  // the cursor's line, after the last newline
  return screen;
}

void Terminal::Show(const std::string& text) {
  WriteAll(absl::StrCat(kHome, absl::StrReplaceAll(text, {{"\n", kClearToEndOfLine}}),
                        kClearToEndOfScreen));
}

char Terminal::WaitForKey(absl::Duration patience) {
  pollfd ready[] = {{STDIN_FILENO, POLLIN, 0}, {signals_.get(), POLLIN, 0}};
  const int milliseconds = static_cast<int>(absl::ToInt64Milliseconds(patience));
  if (base::RetryOnEintr([&] { return ::poll(ready, std::size(ready), milliseconds); }) <= 0) {
    return kNoKey;
  }
  if (ready[1].revents != 0) {
    const int signal = os::NextSignal(signals_).number;
    return signal == SIGWINCH || signal == 0 ? kNoKey : kQuitKey;
  }
  char key = kNoKey;
  const ssize_t got = base::RetryOnEintr([&] { return ::read(STDIN_FILENO, &key, 1); });
  return got == 1 ? key : kQuitKey;  // the end of the input, or a closed terminal
}

}  // namespace geminid::ctl
