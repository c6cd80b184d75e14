#include "daemon/os/terminal.h"

#include <fcntl.h>
#include <poll.h>

#include "base/system_error.h"

namespace geminid::os {

base::UniqueFd OpenControllingTerminal() {
  return base::UniqueFd(::open("/dev/tty", O_RDONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC));
}

bool HasHungUp(const base::UniqueFd& terminal) {
  pollfd state = {terminal.get(), 0, 0};
  return base::RetryOnEintr([&] { return ::poll(&state, 1, 0); }) == 1 &&
         (state.revents & POLLHUP) != 0;
}

}  // namespace geminid::os
