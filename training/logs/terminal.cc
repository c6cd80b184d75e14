#include "training/logs/terminal.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace geminid::trainer {

size_t TerminalColumns() {
  static const base::UniqueFd controlling(open("/dev/tty", O_RDONLY | O_CLOEXEC | O_NOCTTY));
  for (const int fd : {STDERR_FILENO, controlling.get()}) {
    winsize size = {};
    if (fd >= 0 && ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  }
  constexpr size_t kUsual = 80;
  return kUsual;
}

}  // namespace geminid::trainer
